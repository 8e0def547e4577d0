"""Every model: any number of channels, image size and classes; forward, backward and widths."""

import pytest
import torch
from conftest import usual, vary

from allcores_study.config import checks, component, fit, grid, registry
from allcores_study.config.run import Entry
from allcores_study.planning import trials
from allcores_study.training import models

NARROW = {"width": 0.1}


def build(name, channels, image_size, classes, **options):
    torch.manual_seed(0)
    run = vary(model=Entry(name, name, options))
    return models.build(run, (channels, *image_size), classes)


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def narrow(name):
    return NARROW if "width" in registry.models()[name].options else {}


# Those for tokens and those for pixels have tests of their own.
FOR_CLASSES = [
    name
    for name, model in registry.models().items()
    if "vocabulary" not in model.arguments and name != "unet"
]


@pytest.mark.parametrize("name", FOR_CLASSES)
@pytest.mark.parametrize(
    ("channels", "image_size", "classes"),
    [(1, (8, 8), 2), (3, (28, 28), 10), (1, (32, 48), 5), (2, (65, 70), 3)],
)
def test_any_channels_size_and_classes(name, channels, image_size, classes):
    model = build(name, channels, image_size, classes, **narrow(name))
    scores = model(torch.randn(3, channels, *image_size))
    assert scores.shape == (3, classes)
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", FOR_CLASSES)
def test_small_images_do_not_shrink_to_nothing(name):
    for size in (1, 2, 3, 5, 7, 11, 13, 14, 15, 16, 17, 23, 31):
        model = build(name, 1, (size, size + 1), 3, **narrow(name)).eval()
        assert model(torch.randn(2, 1, size, size + 1)).shape == (2, 3), size


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
def test_volumes_have_every_memory_format(memory_format):
    run = vary(model=Entry("convnet", "convnet", {}), memory_format=memory_format)
    model = models.build(run, (1, 4, 5, 6), 3)
    assert model(torch.randn(2, 1, 4, 5, 6)).shape == (2, 3)


@pytest.mark.parametrize("name", [name for name in FOR_CLASSES if narrow(name)])
def test_width_multiplies(name):
    sizes = [count(build(name, 3, (32, 32), 10, width=width)) for width in (0.25, 0.5)]
    assert sizes[0] < sizes[1]


def test_sizes_known_from_the_literature():
    assert count(build("lenet", 3, (32, 32), 10)) == 62_006
    assert count(build("vgg11", 3, (32, 32), 10)) == pytest.approx(9.2e6, rel=0.01)
    assert count(build("vgg19", 3, (32, 32), 10)) == pytest.approx(20.0e6, rel=0.01)
    assert count(build("resnet18", 3, (32, 32), 10)) == pytest.approx(11.17e6, rel=0.01)
    assert count(build("resnet50", 3, (224, 224), 1000)) == 25_557_032
    assert count(build("mobilenet", 3, (32, 32), 10)) == pytest.approx(3.2e6, rel=0.01)
    assert count(build("mobilenet_v2", 3, (224, 224), 1000)) == 3_504_872
    assert count(build("mlp", 1, (28, 28), 10)) == 784 * 256 + 256 + 256 * 257 + 2570


def test_dropout_is_an_option():
    model = build("alexnet", 3, (32, 32), 10, dropout=0.25, **NARROW)
    rates = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
    assert rates == {0.25}


MODEL_SOURCE = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, classes, hidden=5):
        super().__init__(nn.Flatten(), nn.Linear(16, hidden), nn.Linear(hidden, classes))"""


def test_a_model_of_your_own_is_told_what_it_asks_for(tmp_path, monkeypatch):
    (tmp_path / "own_nets.py").write_text(MODEL_SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    model = build("own_nets:Net", 1, (4, 4), 3, hidden=6)
    assert model(torch.randn(2, 1, 4, 4)).shape == (2, 3)
    assert model[2].in_features == 6


OF_WIDTH = """
import torch
from torch import nn


class Wide(nn.Module):
    def __init__(self, channels=64, classes=2, image_size=(8, 8)):
        super().__init__()
        self.size = int(image_size)
        layers = nn.LazyLinear(channels), nn.Linear(channels, classes)
        self.layers = nn.Sequential(nn.Flatten(), *layers)

    def forward(self, x):
        return self.layers(x)


class Narrow(Wide):
    def __init__(self, channels, classes):
        super().__init__(channels, classes, 8)


class Trained(nn.Sequential):
    def __init__(self, epochs, classes):
        super().__init__(nn.Flatten(), nn.LazyLinear(epochs), nn.Linear(epochs, classes))
"""
TRAINING = {"batch_size": 4, "epochs": 2, "optimizer": {"name": "sgd", "lr": 0.1}}
STUDY = {"datasets": ["digits"], "folds": 2, "schedules": ["cosine"], "strategies": ["serial"]}


def config_of(entry):
    study = STUDY | {"models": ["mine"]}
    models_of_study = {"mine": TRAINING | entry}
    return {
        "models": models_of_study,
        "studies": {"first": study},
        "precision": "fp32",
        "memory_format": "contiguous",
    }


@pytest.fixture
def of_width(tmp_path, monkeypatch):
    (tmp_path / "of_width.py").write_text(OF_WIDTH)
    monkeypatch.syspath_prepend(str(tmp_path))
    component.source_of.cache_clear()
    component.imported.cache_clear()


def test_a_key_of_an_entry_wins_over_what_the_data_decide(of_width):
    config = config_of({"import": "of_width:Wide", "channels": 7, "image_size": 8})
    assert checks.findings(config) == []
    (note,) = [note for note in fit.notes(config, "first") if "of_width" in note]
    assert "its classes are taken from the data" in note
    run = next(iter(grid.expand(config).runs.values()))
    model = models.build(run, (1, 8, 8), 10)
    assert model.layers[1].out_features == 7
    assert "classes=10" in models.note_on_supplied(run, (1, 8, 8), 10)


def test_an_argument_that_the_data_do_not_have_keeps_its_default(of_width):
    entry = {"import": "of_width:Wide", "image_size": 8}
    run = next(iter(grid.expand(config_of(entry)).runs.values()))
    assert models.build(run, (5,), 3).layers[1].out_features == 64
    run = next(iter(grid.expand(config_of({"import": "of_width:Narrow"})).runs.values()))
    with pytest.raises(ValueError, match=r"takes channels.* or `channels: \.\.\.` in its entry"):
        models.build(run, (5,), 3)


def test_a_constructor_that_fails_is_told_with_what_the_data_gave_it(of_width):
    run = next(iter(grid.expand(config_of({"import": "of_width:Wide"})).runs.values()))
    said = trials.answer(run, (1, 8, 8), usual(10))["problem"]
    assert "not 'tuple'" in said
    assert "channels=1, image_size=(8, 8)" in said


def test_an_argument_may_have_the_name_of_a_key_about_training(of_width):
    (said,) = checks.findings(config_of({"import": "of_width:Trained"}))
    assert "lacks epochs; write `options: {epochs: ...}`" in said
    config = config_of({"import": "of_width:Trained", "options": {"epochs": 5}})
    assert checks.findings(config) == []
    run = next(iter(grid.expand(config).runs.values()))
    assert run.epochs == 2
    assert models.build(run, (1, 8, 8), 10)[1].out_features == 5
    said = checks.findings(config_of({"import": "of_width:Trained", "options": {"epoch": 5}}))
    assert any("models.mine.options.epoch: unknown key" in line for line in said)
