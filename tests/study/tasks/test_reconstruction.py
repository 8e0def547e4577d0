"""The input itself is predicted: trained, scored, kept."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import DDP, using, vary
from test_own_parts import module  # noqa: F401

from allcores.loop.sharding import shards, shuffled
from allcores_study.analysis import collect, products
from allcores_study.config import registry
from allcores_study.config.run import Entry
from allcores_study.planning import trials
from allcores_study.records import run_files
from allcores_study.serving import output, samples
from allcores_study.serving.predictor import Predictor
from allcores_study.training import models

ROWS = 30
INPUTS = np.random.default_rng(0).normal(3, 2, (ROWS, 5)).astype(np.float32)
SGD = Entry("SGD", "SGD", {"lr": 0.1})


@pytest.fixture
def run(tmp_path):
    np.savez(tmp_path / "mine.npz", inputs=INPUTS)
    options = {"path": str(tmp_path / "mine.npz"), "task": "reconstruction"}
    return vary(
        dataset=Entry("mine", "npz", options),
        model=Entry("mlp", "mlp", {"hidden": [2]}),
        loss=Entry("MSELoss", "MSELoss", {}),
        optimizer=SGD,
        schedule=Entry("constant", "constant", {}),
        **{"crop": 0, "flip": False, "folds": 3, "fold": 0, "epochs": 3, "batch_size": 7},
    )


def kept(laboratory):
    return pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")


def test_weights_and_errors_are_those_of_a_plain_loop(run, laboratory):
    metrics, weights = laboratory.trained(run)
    frame = kept(laboratory)
    held_out = frame["sample"].to_numpy()
    mine = np.setdiff1d(np.arange(ROWS), held_out)
    scaled = (INPUTS - INPUTS[mine].mean(axis=0)) / INPUTS[mine].std(axis=0)
    inputs = torch.tensor(scaled)
    torch.manual_seed(run.seed)
    model = models.build(run, (5,), 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(run.epochs):
        for shard in shards(shuffled(mine, run.seed, epoch), 7, 0, 1):
            optimizer.zero_grad()
            part = inputs[shard.samples]
            (model(part) - part).square().mean().backward()
            optimizer.step()
    for name, expected in model.state_dict().items():
        assert torch.allclose(weights[name], expected, atol=1e-5), name
    errors = (model(inputs[held_out]) - inputs[held_out]).square().mean(dim=1).detach().numpy()
    assert frame["predicted"].to_numpy() == pytest.approx(errors, rel=1e-4)
    assert metrics["mse"] == pytest.approx(errors.mean(), rel=1e-4)
    assert metrics["loss"] == pytest.approx(metrics["mse"], rel=1e-5)
    shown = frame[frame["output"].map(len) > 0]
    order = np.argsort(errors)
    assert set(shown.index) == {*order[:4], *order[-4:]}
    assert np.stack(shown["input"]) == pytest.approx(scaled[shown["sample"]], abs=1e-5)
    assert np.stack(frame["shape"]).tolist() == [[5]] * len(frame)


@pytest.mark.parametrize("strategy", ["ddp", "shared_memory"])
def test_what_noise_adds_is_to_be_removed_by_any_number_of_workers(
    run,
    laboratory,
    module,  # noqa: F811
    strategy,
):
    noisy = vary(run, augmentation=Entry("noise", "parts_of_mine:noise", {"sigma": 1.0}))
    serial, expected = laboratory.trained(noisy, "serial")
    workers, weights = laboratory.trained(using(Entry(strategy, strategy, {}), 2, noisy), "two")
    for name, value in expected.items():
        assert torch.allclose(weights[name], value, atol=1e-6), name
    assert workers["mse"] == pytest.approx(serial["mse"], rel=1e-5)
    losses = [epoch["loss"] for epoch in serial["epochs"]]
    # With the noise in what it is compared with, the loss could not fall below its variance.
    assert losses[-1] < 1.2


@pytest.mark.parametrize("shape", [(5,), (1, 5, 4), (3, 4, 4)])
def test_the_best_and_the_worst_are_drawn(run, laboratory, tmp_path, shape):
    inputs = np.random.default_rng(1).integers(0, 255, (ROWS, *shape)).astype(np.uint8)
    name = "images" if len(shape) == 3 else "inputs"
    np.savez(tmp_path / "mine.npz", **{name: inputs})
    laboratory.trained(run)
    files = laboratory.folder / "run"
    frame = collect.predictions_of_all([(run_files.metrics(files), files)])
    facts = products.Facts("s", "serial", None, ())
    drawn = products.load("reconstructions_figure").figure(frame, facts)
    errors = sorted(frame["predicted"])
    titles = [panel.get_title().splitlines()[-1] for panel in drawn.axes]
    assert titles == [f"error {error:.3g}" for error in (*errors[:2], *errors[-2:])]
    if len(shape) == 3:
        (picture,) = drawn.axes[0].get_images()
        assert picture.get_array().shape[:2] == (2 * shape[1] + 1, shape[2])
    else:
        best = frame.sort_values("predicted").iloc[0]
        lines = [line.get_ydata() for line in drawn.axes[0].get_lines()]
        assert np.array_equal(lines[0], best["input"])
        assert np.array_equal(lines[1], best["output"])


def test_a_trained_one_tells_the_error_of_new_samples(run, laboratory, tmp_path):
    laboratory.trained(run)
    predictor = Predictor(laboratory.folder / "run")
    new = samples.read(tmp_path / "mine.npz", predictor)
    answers = predictor.predictions(new.inputs)
    frame = kept(laboratory)
    assert answers[frame["sample"], 0] == pytest.approx(frame["predicted"].to_numpy(), rel=1e-5)
    table, score = output.of(new, answers, predictor.task, predictor.names)
    assert [*table] == ["sample", "predicted"]
    assert "mean squared error" in score


def test_a_network_that_gives_something_else_is_refused(run):
    metadata = registry.metadata(run.dataset)
    assert metadata.task.outputs == 5
    assert trials.tried_out(run, metadata.shape, metadata.task, [DDP])["seconds"] > 0
    signal = (1, 5)
    with pytest.raises(trials.UnfitPartError, match=r"is \(2, 4\) in training; expected \(2, 1, 5"):
        trials.tried_out(
            vary(run, model=Entry("four", "test_reconstruction:four", {})), signal, metadata.task
        )
    flat = trials.tried_out(run, signal, metadata.task)
    assert flat["seconds"] > 0, "as many numbers are enough"


def four(shape):
    """A model of four outputs."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(5, 4))
