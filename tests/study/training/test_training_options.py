"""Clipped gradients, averaged weights and a validation part keep what plain training promises."""

from functools import partial

import numpy as np
import pytest
import torch
from conftest import same_weights, using, vary
from test_strategies import ALL, SYNCHRONOUS, by_strategy, close, promises

from allcores.parallel.optimizers import OptimizerMaker
from allcores_study.config import checks, component
from allcores_study.config.run import Entry
from allcores_study.data.folds import Assignable, hold_back
from allcores_study.training.evaluation import is_over, shipped
from allcores_study.training.optimizers import make_chosen

SGD = Entry("SGD", "SGD", {"lr": 0.05, "momentum": 0.9})
# Most of the gradients of RUN have a norm above it.
CLIP_NORM = 0.3
OPTIONS = {
    "clip_norm": {"clip_norm": CLIP_NORM},
    "others": {"ema": 0.8, "validation": 0.2},
}
EPOCHS = 4


def with_each(options):
    return pytest.mark.parametrize("options", options.values(), ids=options)


def test_the_norm_is_torchs_however_the_gradient_is_cut():
    torch.manual_seed(0)
    whole = torch.randn(1 << 20)
    expected = whole.clone().requires_grad_()
    expected.grad = whole.clone()
    torch.nn.utils.clip_grad_norm_([expected], CLIP_NORM)
    maker = OptimizerMaker(partial(make_chosen, SGD), CLIP_NORM)
    cut = whole.clone()
    maker.clip(list(cut.split(999)))
    torch.testing.assert_close(cut, expected.grad)
    once = whole.clone()
    maker.clip([once])
    assert torch.equal(once, cut)
    small = torch.full((4,), 0.1)
    maker.clip([small])
    assert torch.equal(small, torch.full((4,), 0.1))


@by_strategy({name: entry for name, entry in ALL.items() if name not in SYNCHRONOUS})
@with_each(OPTIONS)
def test_with_one_worker_an_option_does_what_it_does_for_serial(
    laboratory, reference, strategy, options
):
    """With several they are not comparable; those that are have the test below."""
    _, plain = reference(vary(epochs=EPOCHS))
    _, serial = reference(vary(epochs=EPOCHS, **options))
    assert not same_weights(serial, plain), "the option does nothing"
    _, other = laboratory.trained(using(strategy, 1, epochs=EPOCHS, **options), "other")
    if promises(strategy.name):
        assert same_weights(other, serial)
    else:
        assert not same_weights(other, plain)


@by_strategy(SYNCHRONOUS)
@with_each(OPTIONS)
def test_synchronous_strategies_still_follow(laboratory, reference, strategy, options):
    if strategy.name == "local_sgd" and "clip_norm" in options:
        pytest.skip("each worker clips its own gradient")
    _, serial = reference(vary(epochs=EPOCHS, **options))
    _, other = laboratory.trained(using(strategy, 3, epochs=EPOCHS, **options), "other")
    assert close(other, serial)


# A layer of 1.3 million weights, and one that is used twice.
LARGE = """
import torch


class Net(torch.nn.Module):
    def __init__(self, channels, image_size, classes):
        super().__init__()
        self.inputs = torch.nn.Linear(channels * image_size[0] * image_size[1], 1200)
        self.inside = torch.nn.Linear(1200, 1200)
        self.again = self.inside
        self.outputs = torch.nn.Linear(1200, classes)

    def forward(self, images):
        inside = self.inside(self.inputs(images.flatten(1)).tanh()).tanh()
        return self.outputs(self.again(inside))
"""


@by_strategy(SYNCHRONOUS)
def test_a_large_layer_and_one_that_is_used_twice_train_with_every_option(
    laboratory, reference, monkeypatch, strategy
):
    """Also those whose weights are averaged, which are a copy of the model."""
    monkeypatch.syspath_prepend(str(laboratory.folder))
    (laboratory.folder / "large_model.py").write_text(LARGE)
    component.source_of.cache_clear()
    run = vary(model=Entry("large", "large_model:Net", {}), optimizer=SGD, epochs=1, batch_size=20)
    run = vary(run, ema=0.5, validation=0.2)
    if strategy.name != "local_sgd":  # of which each worker clips its own gradient
        run = vary(run, clip_norm=CLIP_NORM)
    _, serial = reference(run)
    _, other = laboratory.trained(using(strategy, 2, run))
    assert close(other, serial)


def test_an_average_is_that_of_the_weights_after_each_step(laboratory):
    """Of two steps, with what torch's rule says by hand."""
    run = vary(epochs=1, batch_size=27)
    _, last = laboratory.trained(run, "last")
    _, half = laboratory.trained(vary(run, ema=0.5), "half")
    _, quarter = laboratory.trained(vary(run, ema=0.25), "quarter")
    for name, weights in last.items():
        first = 2 * half[name] - weights
        torch.testing.assert_close(quarter[name], 0.25 * first + 0.75 * weights)
        assert not torch.equal(first, weights)


@pytest.mark.parametrize(
    ("study", "text"),
    [
        ({}, None),
        ({"select": 2}, "with 59 samples"),
        ({"train_sizes": [60, "all"]}, "with 60 "),
    ],
)
def test_a_validation_part_suits_the_smallest_training_part(study, text):
    model = {"name": "mlp", "batch_size": 8, "epochs": [2, 3], "validation": 0.03}
    model["optimizer"] = {"name": "sgd", "lr": 0.1}
    study = {"datasets": ["wine"], "folds": 3, "models": ["best"]} | study
    findings = checks.findings({"models": {"best": model}, "studies": {"mine": study}})
    assert bool(findings) == bool(text)
    assert all(text in finding and "that is less than 3" in finding for finding in findings)


def test_the_best_epoch_by_the_validation_part_is_shipped_and_ends_the_run(laboratory):
    run = vary(epochs=30, validation=0.25, patience=2, optimizer=Entry("SGD", "SGD", {"lr": 0.4}))
    metrics, _ = laboratory.trained(run, "patient", curves=True)
    losses = [epoch["validation_loss"] for epoch in metrics["epochs"]]
    best = losses.index(min(losses))
    assert metrics["shipped_epoch"] == best + 1
    assert len(losses) == best + 3 < 30
    assert metrics["accuracy"] == metrics["epochs"][best]["accuracy"]
    assert (metrics["train_samples"], metrics["validation_samples"]) == (39, 14)


def test_without_a_better_epoch_it_waits_no_longer():
    losses = [3.0, 2.0, 2.5, 2.0]
    epochs = [{"validation_loss": loss} for loss in losses]
    run = vary(epochs=9, validation=0.1, patience=2)
    assert [is_over(run, epochs[:count]) for count in range(5)] == [False] * 4 + [True]
    assert shipped(epochs) == 1, "the first of equal ones"
    assert not is_over(vary(run, patience=None), epochs)
    assert is_over(vary(run, epochs=4, patience=None), epochs)
    assert shipped([{}, {}]) == 1


def test_a_loss_that_is_no_number_is_no_best_one():
    def best(*losses):
        return shipped([{"validation_loss": loss} for loss in losses])

    nan = float("nan")
    assert best(nan, 2.0, 1.0, nan) == 2
    assert best(nan, nan) == 0
    run = vary(epochs=9, validation=0.1, patience=2)
    assert not is_over(run, [{"validation_loss": loss} for loss in (nan, nan, 5.0, 4.0, 6.0)])


@pytest.mark.parametrize("part", [0.1, 0.25, 0.4, 0.5])
def test_a_validation_part_keeps_groups_together_and_classes_in_proportion(part):
    targets = np.arange(200) % 4
    groups = np.arange(200) // 5
    samples = np.arange(0, 160)
    rest, held = hold_back(Assignable(targets), samples, part, seed=3)
    assert sorted([*rest, *held]) == list(samples)
    assert len(held) == pytest.approx(part * 160, abs=2)
    counts = np.bincount(targets[held])
    assert max(counts) - min(counts) <= 1
    with pytest.raises(ValueError, match="no validation part"):
        hold_back(Assignable(targets), samples[:20], 0.01, seed=3)
    rest, held = hold_back(Assignable(targets, groups), samples, part, seed=3)
    assert not set(groups[rest]) & set(groups[held])
    assert len(hold_back(Assignable(targets), samples, None, seed=3)[1]) == 0


def test_of_infinite_numbers_of_a_mask_there_is_no_average(laboratory, monkeypatch):
    (laboratory.folder / "masked.py").write_text("""
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))
        self.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))

    def forward(self, images):
        return self.layers(images) + self.mask.softmax(1).sum()
""")
    monkeypatch.syspath_prepend(laboratory.folder)
    run = vary(model=Entry("masked", "masked:Net", {}), ema=0.9)
    metrics, weights = laboratory.trained(run)
    assert metrics["diverged"] is None
    assert torch.isneginf(weights["mask"]).sum() == 6
