"""Stacked networks are the lone ones, each with its own options, however many stand together."""

import dataclasses

import psutil
import pytest
import torch
from conftest import vary
from torch import nn

from allcores.files import read_json
from allcores.machine import costs
from allcores_study.config.run import Conditions, Entry
from allcores_study.records.run_files import METRICS
from allcores_study.stacking import data, loop, networks
from allcores_study.stacking import stacks as stacking
from allcores_study.training import models
from allcores_study.training.prepared import PreparedRun

TABLE = Entry("wine", "wine", {})
NUMBERS = Entry("diabetes", "diabetes", {})
MLP = Entry("mlp", "mlp", {"hidden": [9]})
PLAIN = vary(
    dataset=TABLE,
    model=MLP,
    batch_size=16,
    epochs=3,
    crop=0,
    flip=False,
    folds=3,
    fold=0,
    optimizer=Entry("Adam", "Adam", {"lr": 0.01}),
    loss=Entry("CrossEntropyLoss", "CrossEntropyLoss", {}),
    schedule=Entry("constant", "constant", {}),
    strategy=Entry("serial", "serial", {}),
    workers=1,
)


def options(name, **values):
    return {"optimizer": Entry(name, name, {"lr": 0.02} | values)}


def schedule(name, **values):
    return {"schedule": Entry(name, name, values)}


CASES = {
    "plain": {},
    "sgd": options("SGD"),
    "momentum": options("SGD", momentum=0.9),
    "nesterov": options("SGD", momentum=0.8, nesterov=True, weight_decay=0.01),
    "adam with decay": options("Adam", weight_decay=0.02, betas=[0.8, 0.95], eps=1e-6),
    "adamw": options("AdamW", weight_decay=0.1),
    "adamw without a word on decay": options("AdamW"),
    "cosine": schedule("cosine", warm_up=0.2),
    "restarts": schedule("warm_restarts"),
    "plateau": schedule("plateau", patience=0, threshold=0.5),
    "one cycle": schedule("onecycle"),
    "clipped": {"clip_norm": 0.05},
    "ema": {"ema": 0.9},
    "validation": {"validation": 0.25},
    "patience": {"validation": 0.3, "patience": 1, "epochs": 8} | options("Adam", lr=0.3),
    "seed": {"seed": 7},
    "another fold": {"fold": 2},
    "an inner fold": {"inner_folds": 2, "inner_fold": 1},
    "a part of the samples": {"train_size": 33},
    "one batch": {"batch_size": 500},
    "batches of one": {"batch_size": 1, "epochs": 1},
    "two layers": {"model": Entry("mlp", "mlp", {"hidden": [5, 6]})},
    "no hidden layer": {"model": Entry("mlp", "mlp", {"hidden": []})},
    "balanced": {"loss": Entry("CrossEntropyLoss", "CrossEntropyLoss", {"weight": "balanced"})},
    "numbers": {"dataset": NUMBERS, "loss": Entry("MSELoss", "MSELoss", {})},
    "numbers by huber": {
        "dataset": NUMBERS,
        "loss": Entry("HuberLoss", "HuberLoss", {"delta": 0.5}),
    },
    "of a user": {"model": Entry("curved", "of_stack:curved", {})},
    "drawn by numpy": {"model": Entry("drawn", "of_stack:drawn", {})},
    "an activation twice": {"model": Entry("twice", "of_stack:twice", {})},
    "a last batch of one": {"train_size": 49},
    "multistep": schedule("multistep", milestones=[0.4, 0.8], gamma=0.2),
    "constant with warm-up": schedule("constant", warm_up=0.5),
    "images": {"dataset": Entry("digits", "digits", {}), "train_size": 80},
    "all that ships": {"ema": 0.7, "validation": 0.3, "patience": 2, "clip_norm": 1.0},
    "numbers by l1": {"dataset": NUMBERS, "loss": Entry("L1Loss", "L1Loss", {})},
    "numbers with ema": {
        "dataset": NUMBERS,
        "loss": Entry("SmoothL1Loss", "SmoothL1Loss", {"beta": 0.5}),
        "ema": 0.8,
    },
    "the whole training part": {
        "dataset": Entry("fake", "fake", {"count": 50, "test": 20, "size": 4, "classes": 3})
    }
    | {"folds": None, "fold": None},
    "a final model": {"folds": None, "fold": None, "final": True},
}


def request_of(laboratory, run, name, **conditions):
    return laboratory.request(
        run,
        name,
        output=laboratory.folder / "stacked" / name,
        pinning=False,
        conditions=Conditions(**conditions),
    )


def stack(laboratory, runs, **conditions):
    """What metrics.json says and the weights, of each run; and those that were not stacked."""
    requests = [request_of(laboratory, run, str(k), **conditions) for k, run in enumerate(runs)]
    stacks, others = stacking.stacks_of(requests)
    stacking.train_stacks(stacks)
    torch.set_num_threads(1)
    refused = [one for one, _ in others]
    return [
        (read_json(one.output / METRICS), weights_of(one)) for one in requests if one not in refused
    ], [why for _, why in others]


def weights_of(request):
    """Of an inner run there are none."""
    return {} if request.run.inner_folds else torch.load(request.output / "weights.pt")


def difference(weights, others):
    assert list(weights) == list(others)
    each = (weights[name].double() - others[name].double() for name in weights)
    return max((float(one.abs().max()) for one in each), default=0.0)


@pytest.mark.parametrize("case", CASES)
def test_a_network_of_a_stack_is_the_lone_one(laboratory, case):
    run = vary(PLAIN, **CASES[case])
    lone, weights = laboratory.trained(run)
    # Among others, which differ in what each may have of its own.
    rate = run.optimizer.options | {"lr": 0.001}
    others = [
        vary(run, optimizer=dataclasses.replace(run.optimizer, options=rate)),
        vary(run, seed=run.seed + 1),
    ]
    (stacked, of_stack), *_ = stack(laboratory, [run, *others])[0]
    assert difference(of_stack, weights) < 1e-5
    assert stacked["stacked"] and not lone["stacked"]
    assert stacked["shipped_epoch"] == lone["shipped_epoch"]
    assert len(stacked["epochs"]) == len(lone["epochs"])
    for mine, other in zip(stacked["epochs"], lone["epochs"], strict=True):
        assert mine["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert mine["lr"] == other["lr"]
    assert stacked["loss"] == pytest.approx(lone["loss"], rel=1e-4)
    same = ("settings", "identity", "train_samples", "held_out_samples", "scaling", "parameters")
    assert {key: stacked[key] for key in same} == {key: lone[key] for key in same}
    assert lone.keys() == stacked.keys() - {"made_of", "files", "loaded"}


ONE_NUMBER = CASES["numbers"] | {"model": Entry("mlp", "mlp", {"hidden": [16]})}


@pytest.mark.parametrize(
    "case",
    [{"model": MLP}, {"model": Entry("curved", "of_stack:curved", {})}, ONE_NUMBER],
    ids=["mlp", "curved", "one number"],
)
def test_how_many_stand_together_decides_no_bit(laboratory, case):
    base = vary(PLAIN, **case)
    runs = [
        vary(
            base,
            epochs=2,
            seed=seed % 5,
            fold=seed % 3,
            **options("AdamW", lr=0.001 * (1 + seed)),
        )
        for seed in range(50)
    ]
    prepared_runs = [PreparedRun.of(run, laboratory.data(base.dataset), None) for run in runs]

    def network(prepared):
        torch.manual_seed(prepared.run.seed)
        return models.build(prepared.run, prepared.dataset.shape, prepared.dataset.task.outputs)

    def weights(most):
        """Of each network, in stacks of so many."""
        shipped = {}
        for start in range(0, len(prepared_runs), most):
            part = prepared_runs[start : start + most]

            def keep(k, epochs, ship, start=start):
                shipped[start + k] = ship()

            loop.train(part, list(map(network, part)), keep)
        return shipped

    expected = weights(50)
    for most in (1, 2, 7):
        found = weights(most)
        assert all(difference(found[k], expected[k]) == 0 for k in range(50))


def test_a_stack_that_fails_takes_no_other_with_it(laboratory, monkeypatch):
    wide = vary(PLAIN, model=Entry("mlp", "mlp", {"hidden": [10]}))
    requests = [request_of(laboratory, run, str(k)) for k, run in enumerate((PLAIN, wide))]
    stacks, _ = stacking.stacks_of(requests)
    original = stacking.train

    def train(prepared_runs, *others):
        assert prepared_runs[0].run is not PLAIN, "out of order"
        return original(prepared_runs, *others)

    monkeypatch.setattr(stacking, "train", train)
    with pytest.raises(AssertionError, match="out of order"):
        stacking.train_stacks(stacks)
    torch.set_num_threads(1)
    assert [(one.output / METRICS).exists() for one in requests] == [False, True]


def test_curves_are_scored_after_each_epoch(laboratory):
    lone, _ = laboratory.trained(PLAIN, curves=True)
    ((stacked, _),), _ = stack(laboratory, [PLAIN], curves=True)
    assert [e["accuracy"] for e in stacked["epochs"]] == [e["accuracy"] for e in lone["epochs"]]


def test_a_network_that_diverges_takes_no_other_with_it(laboratory):
    wild = vary(PLAIN, **options("SGD", lr=1e12))
    calm = vary(PLAIN, **options("SGD"))
    ((alone, weights),), _ = stack(laboratory, [calm])
    ((bad, none), (good, same)), _ = stack(laboratory, [wild, calm])
    lone, _ = laboratory.trained(wild)
    assert bad["diverged"] == lone["diverged"]
    assert none == {} and bad["loss"] is None
    assert difference(weights, same) == 0
    assert good["loss"] == alone["loss"]


def test_what_a_network_reached_before_its_last_update_broke_it_is_kept(laboratory):
    broken = vary(PLAIN, batch_size=500, epochs=1, **options("SGD", lr=1e30))
    lone, _ = laboratory.trained(broken)
    ((stacked, _),), _ = stack(laboratory, [broken])
    assert stacked["diverged"] == lone["diverged"] is not None
    reached = [[epoch["accuracy"] for epoch in one["epochs"]] for one in (lone, stacked)]
    assert reached[0] == reached[1] != [None]


def test_places_without_a_sample_hold_one_to_train_on(laboratory):
    """One that is held out may be infinite, which would reach the gradient even of a zero loss."""
    request = request_of(laboratory, vary(PLAIN, train_size=5), "0")
    ((member,),) = stacking.stacks_of([request])[0]
    positions, present = data.orders([member.prepared], [0], 2, 32)
    assert present.sum() == 5
    assert set(positions.flatten().tolist()) == set(member.prepared.samples.tolist())


def test_the_time_of_an_epoch_is_shared_by_the_networks_of_a_stack(laboratory, monkeypatch):
    monkeypatch.setattr(loop.Clock, "take", lambda self: {"compute": 8.0})
    results, _ = stack(laboratory, [vary(PLAIN, seed=seed) for seed in range(4)])
    phases = [epoch["phases"] for metrics, _ in results for epoch in metrics["epochs"]]
    assert phases == [{"compute": 2.0}] * 4 * PLAIN.epochs


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": Entry("lenet", "lenet", {"width": 0.1})}, "not known to be plain"),
        ({"model": Entry("c", "of_stack:Named", {})}, "is a Named"),
        ({"model": Entry("c", "of_stack:dropping", {})}, "layer 2 is a Dropout"),
        ({"model": Entry("c", "of_stack:normed", {})}, "layer 2 is a BatchNorm1d"),
        ({"model": Entry("c", "of_stack:in_place", {})}, "layer 2 is a ReLU"),
        ({"model": Entry("c", "of_stack:hooked", {})}, "hooks"),
        ({"model": Entry("c", "of_stack:hooked_gradient", {})}, "hooks"),
        ({"model": Entry("c", "of_stack:tied", {})}, "it shares"),
        ({"model": Entry("c", "of_stack:frozen", {})}, "not trained"),
        ({"model": Entry("c", "of_stack:with_buffer", {})}, "buffers besides those of its layers"),
        ({"model": Entry("c", "of_stack:with_weight", {})}, "weights or buffers besides"),
        ({"model": Entry("c", "of_stack:replaced", {})}, "a forward() of its own"),
        ({"loss": Entry("l", "MSELoss", {"size_average": True}), "dataset": NUMBERS}, "size_aver"),
        (options("Adam", eps=0), "eps 0"),
        ({"model": Entry("mlp", "mlp", {"hidden": [3000]})}, "too large"),
        ({"epochs": 10_000}, "needs checkpoints"),
        (options("Adagrad"), "Adagrad"),
        (options("Adam", amsgrad=True), "amsgrad"),
        ({"stacked": False}, "its study compares ways"),
        ({"precision": "bf16"}, "bf16"),
        ({"threads_per_worker": 2}, "threads"),
        ({"strategy": Entry("gpu", "accelerator", {"device": "cpu"})}, "not plain"),
        ({"strategy": Entry("data_parallel", "data_parallel", {})}, "not plain"),
        ({"loss": Entry("l", "CrossEntropyLoss", {"label_smoothing": 0.1})}, "label_smoothing"),
    ],
)
def test_what_cannot_be_stacked_says_why(laboratory, changes, why):
    results, reasons = stack(laboratory, [vary(PLAIN, **changes)])
    assert results == []
    assert why in reasons[0]


def test_a_run_with_a_key_that_stacks_do_not_know_trains_alone(monkeypatch):
    """As one that is new in the loop: a stack would ignore it."""
    monkeypatch.setattr(stacking, "STACKED", stacking.STACKED - {"ema"})
    assert stacking.problem(vary(PLAIN, ema=0.8)) == "stacks do not know `ema`"
    assert stacking.problem(PLAIN) is None


def test_a_layer_that_gets_other_shapes_is_not_stacked():
    """A linear layer of a signal, which has a dimension more."""
    model = nn.Sequential(nn.Linear(6, 4), nn.Flatten(), nn.Linear(4, 3))
    assert networks.problem(model, (6,)) is None
    assert "layer 0" in networks.problem(model, (1, 6))


@pytest.mark.parametrize("most", [4, 2, 1])
def test_the_costs_of_a_stack_are_those_of_its_runs(laboratory, monkeypatch, most):
    """Also of several stacks, one after the other in a process."""
    monkeypatch.setattr(stacking, "MOST", most)
    runs = [vary(PLAIN, seed=seed) for seed in range(4)]
    results, _ = stack(laboratory, runs)
    ended = [(metrics["started"], metrics["ended"]) for metrics, _ in results]
    assert all(abs(ended[k][1] - ended[k + 1][0]) < 1e-6 for k in range(3))
    # An earlier test of this process may have left children, such as multiprocessing's tracker.
    of_children = [sum(child.cpu_times()) for child in psutil.Process().children(recursive=True)]
    spent = costs.cpu_seconds() + sum(of_children)
    assert sum(metrics["cpu_seconds"] for metrics, _ in results) <= spent
    folder = laboratory.folder / "stacked" / "0"
    metrics = read_json(folder / METRICS)
    assert [len(session["trace"]) for session in metrics["sessions"]] == [2]
    assert len(metrics["epochs"]) == PLAIN.epochs
    assert (folder / "predictions.parquet").exists()
