"""A loss and an augmentation of the user's own, by import path."""

import importlib
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import DDP, RUN, same_weights, task_of, using, vary
from hypothesis import given
from hypothesis import strategies as st
from test_several_numbers import FRAME, run_on

from allcores_study.config import checks, component, grid, registry
from allcores_study.config.run import Entry
from allcores_study.data import augmentation
from allcores_study.data.augmentation import SampleGenerator
from allcores_study.planning import trials
from allcores_study.records import fingerprint

SOURCE = """
import torch
from torch import nn


class Focal(nn.Module):
    def __init__(self, gamma=2.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, scores, targets):
        logarithms = scores.log_softmax(dim=1).gather(1, targets[:, None])
        return -((1 - logarithms.exp()) ** self.gamma * logarithms).mean()


def scaled_error(scores, targets, by=1.0):
    return by * (scores - targets).square().mean()


def summed(scores, targets):
    return nn.functional.cross_entropy(scores, targets, reduction="sum")


def noise(inputs, generator, sigma=0.1):
    rows = generator.normal(0, sigma, size=inputs.shape[1:])
    return inputs + rows * generator.integers(0, 2, size=[1] * (inputs.ndim - 1))


def narrower(inputs, generator):
    return inputs[:, :1]


def as_array(inputs, generator):
    return inputs.numpy()
"""
ENTRY = {
    "name": "lenet",
    "batch_size": 8,
    "epochs": 2,
    "optimizer": {"name": "sgd", "lr": 0.05},
    "loss": {"import": "parts_of_mine:Focal", "gamma": 1.0},
    "augmentation": {"import": "parts_of_mine:noise", "sigma": 0.2},
}
SHARED = Entry("shared_memory", "shared_memory", {})


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The user's module, which can be imported."""
    file = tmp_path / "parts_of_mine.py"
    file.write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for cached in (component.source_of, component.imported, component.parse):
        cached.cache_clear()
    monkeypatch.delitem(importlib.sys.modules, "parts_of_mine", raising=False)
    return file


@pytest.fixture
def own_run(module):
    return vary(RUN, **grid.training({"models": {"mine": ENTRY | PLAINEST}}, "mine", RUN.dataset))


PLAINEST = {"precision": "fp32", "memory_format": "contiguous"}


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=9, unique=True), st.data())
def test_draws_belong_to_a_sample_whatever_else_is_in_its_batch(samples, data):
    key = np.array([1, 2], np.uint64)
    some = data.draw(st.permutations(samples))[: len(samples) // 2 + 1]
    places = [samples.index(sample) for sample in some]
    both = [SampleGenerator(key, of) for of in (samples, some)]
    for name, args in (("random", ((2, 3),)), ("integers", (0, 9, 4)), ("normal", ())):
        drawn, drawn_of_some = (getattr(generator, name)(*args) for generator in both)
        assert torch.equal(drawn[places], drawn_of_some)


def test_draws_differ_between_samples_and_epochs_and_calls():
    draws = []
    for epoch in range(3):
        key = np.random.SeedSequence([0, 2, epoch]).generate_state(2, np.uint64)
        generator = SampleGenerator(key, range(100))
        draws += [generator.random(50), generator.random(50)]
    values = torch.cat(draws)
    assert values.dtype == torch.float32
    assert len(values.flatten().unique()) > 0.99 * values.numel()
    assert float(values.mean()) == pytest.approx(0.5, abs=0.01)
    assert abs(float(torch.corrcoef(torch.stack([of.flatten() for of in draws]))[0, 1])) < 0.05


def test_a_run_draws_anew_in_each_epoch_and_for_each_seed(own_run):
    augment, inputs = augmentation.of_run(own_run), torch.zeros(4, 1, 3, 3)
    places = ((0, 0), (0, 1), (1, 0))  # seed and epoch
    draws = [augment(inputs, *place, range(4)) for place in places]
    assert torch.equal(augment(inputs, 0, 1, range(4)), draws[1])
    for one, other in itertools.combinations(draws, 2):
        assert not torch.equal(one, other)


@pytest.mark.parametrize("strategy", [DDP, SHARED], ids=["ddp", "shared_memory"])
def test_workers_follow_serial(own_run, laboratory, strategy):
    serial, weights = laboratory.trained(own_run, "serial")
    metrics, shared = laboratory.trained(using(strategy, 2, own_run), "shared")
    for name, expected in weights.items():
        assert torch.allclose(shared[name], expected, atol=1e-6), name
    assert metrics["loss"] == pytest.approx(serial["loss"], abs=1e-5)
    plain = laboratory.trained(vary(own_run, augmentation=None), "plain")[1]
    assert not same_weights(plain, weights)


def test_the_loss_is_the_users(own_run, laboratory):
    metrics, _ = laboratory.trained(own_run)
    focal = registry.loss("parts_of_mine:Focal").load()(gamma=1.0)
    kept = pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")
    scores = torch.tensor(np.stack(kept["scores"]))
    expected = focal(scores, torch.tensor(kept["true"].to_numpy()))
    assert metrics["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_a_function_can_be_the_loss_of_numbers(module, tmp_path, laboratory):
    run = run_on(tmp_path / "cost.csv", FRAME, "cost", "regression", "MSELoss")
    own = vary(run, loss=Entry("parts_of_mine:scaled_error", "parts_of_mine:scaled_error", {}))
    expected, weights = laboratory.trained(run, "torch")
    metrics, own_weights = laboratory.trained(own, "own")
    assert same_weights(weights, own_weights)
    assert metrics["loss"] == pytest.approx(expected["loss"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"loss": {"import": "parts_of_mine:Focal", "gama": 1}}, "loss.gama: unknown key"),
        ({"loss": {"import": "parts_of_mine:Lost"}}, "defines no Lost"),
        ({"loss": {"import": "parts_of_mine:Focal", "name": "mse"}}, "conflicts with `import`"),
        ({"loss": {"label_smoothing": 0.1}}, "models.mine.loss: lacks name or import"),
        ({"augmentation": {"import": "parts_of_mine"}}, "expected package.module:Name"),
        ({"augmentation": {"import": "parts_of_mine:noise", "sigm": 1}}, "sigm: unknown key"),
        ({"augmentation": {"sigma": 1}}, "augmentation.sigma: unknown key; known: import, crop"),
    ],
)
def test_a_mistake_is_one_line(module, change, said):
    study = {"datasets": ["digits"], "folds": 2, "models": ["mine"]}
    found = checks.findings({"models": {"mine": ENTRY | change}, "studies": {"a": study}})
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    ("change", "problem", "place"),
    [
        ({"augmentation": {"import": "parts_of_mine:narrower"}}, r"returns \(2, 1", "augmentation"),
        ({"augmentation": {"import": "parts_of_mine:as_array"}}, "returns ndarray", "augmentation"),
        ({"loss": {"import": "parts_of_mine:summed"}}, "workers cannot share a batch", "loss"),
    ],
)
def test_what_does_not_fit_is_found_in_a_trial(module, change, problem, place):
    run = vary(
        RUN, **grid.training({"models": {"mine": ENTRY | PLAINEST | change}}, "mine", RUN.dataset)
    )
    facts = registry.facts(run.dataset)
    with pytest.raises(trials.UnfitPartError, match=problem) as caught:
        trials.tried_out(run, facts.shape, task_of(facts), [DDP])
    assert caught.value.place == ("models", "mine", place)
    if place == "loss":
        assert trials.tried_out(run, facts.shape, task_of(facts))["seconds"] > 0


def test_their_files_identify_a_run(own_run):
    assert "parts_of_mine" in fingerprint.files_of_run(own_run)
    assert own_run == type(own_run).from_json(own_run.to_json())
    assert "augmentation" not in RUN.to_json()


def test_rows_of_a_table_can_be_augmented_and_images_alone_cropped(module):
    study = {"datasets": ["wine"], "folds": 2, "models": ["mine"]}
    entry = ENTRY | {"name": "mlp"}
    config = {"models": {"mine": entry}, "studies": {"a": study}}
    assert not checks.findings(config)
    entry["augmentation"] = entry["augmentation"] | {"crop": 1}
    (found,) = checks.findings(config)
    assert "augmentation.crop: is for images" in found


def test_a_loss_that_keeps_something_is_refused_and_a_sum_is_taken_by_one_worker(module):
    module.write_text(
        SOURCE
        + "\n\nclass Learned(Focal):\n    def __init__(self):\n        super().__init__()\n"
        + "        self.weight = nn.Parameter(torch.ones(()))\n"
    )
    facts = registry.facts(RUN.dataset)
    for loss, problem in (("Learned", "it keeps weight"), ("summed", None)):
        entry = ENTRY | PLAINEST | {"loss": {"import": f"parts_of_mine:{loss}"}}
        run = vary(RUN, **grid.training({"models": {"mine": entry}}, "mine", RUN.dataset))
        said = trials.answer(run, facts.shape, task_of(facts), [RUN.strategy])
        assert (problem is None) == (said["problem"] is None), said
        assert problem is None or problem in said["problem"]


def test_a_module_is_found_below_folders_without_init(tmp_path, monkeypatch):
    place = tmp_path / "mine" / "parts" / "deep"
    place.mkdir(parents=True)
    (place / "net.py").write_text("class Net:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert component.source_of("mine.parts.deep.net") == place / "net.py"
    assert component.source_of("mine.parts") is None
    assert component.source_of("mine.nothing.net") is None
