"""Several numbers of each sample are predicted at once."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import DDP, using, vary
from project import copy
from sklearn import metrics
from test_any_data import PLAIN
from test_stack import difference, stack

from allcores.loop.sharding import shards, shuffled
from allcores_study.analysis import metrics as own_metrics
from allcores_study.config import fit
from allcores_study.config.run import Entry
from allcores_study.datasets import npz, table
from allcores_study.serving.model import Model
from allcores_study.serving.predictor import Predictor
from allcores_study.tasks import regression
from allcores_study.training import models

ROWS = 90
RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(RANDOM.normal(size=(ROWS, 3)), columns=["a", "b", "c"])
FRAME["cost"] = 100 + 30 * FRAME["a"] - 10 * FRAME["b"]
FRAME["risk"] = 0.01 * FRAME["c"] + 0.001 * FRAME["a"]
TARGETS = ["cost", "risk"]


def run_on(file, frame, target, task, loss):
    """A run on a table of several columns to predict."""
    frame.to_csv(file, index=False)
    return vary(
        dataset=Entry(file.stem, "table", {"path": str(file), "target": target, "task": task}),
        model=Entry("mlp", "mlp", {"hidden": [8]}),
        loss=Entry(loss, loss, {}),
        schedule=Entry("constant", "constant", {}),
        optimizer=Entry("Adam", "Adam", {"lr": 0.02}),
        **PLAIN,
        **{"folds": 3, "fold": 0, "epochs": 6, "batch_size": 16},
    )


def standardised(values, mine):
    return (values - values[mine].mean(axis=0)) / values[mine].std(axis=0)


def by_hand(run, samples, inputs, targets, loss):
    """The weights of a plain loop of torch."""
    inputs, targets = (torch.tensor(values, dtype=torch.float32) for values in (inputs, targets))
    torch.manual_seed(run.seed)
    model = models.build(run, inputs.shape[1:], targets.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(run.epochs):
        for shard in shards(shuffled(samples, run.seed, epoch), 16, 0, 1):
            optimizer.zero_grad()
            loss(model(inputs[shard.samples]), targets[shard.samples]).backward()
            optimizer.step()
    return model.state_dict()


@pytest.fixture
def run(tmp_path):
    return run_on(tmp_path / "both.csv", FRAME, TARGETS, "regression", "MSELoss")


def test_scores_are_those_of_scikit_learn_and_predictions_come_in_their_units(run, laboratory):
    record, _ = laboratory.trained(run)
    frame = pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")
    true, predicted = (np.stack(frame[name]) for name in ("true", "predicted"))
    assert np.array_equal(true, FRAME[TARGETS].to_numpy()[frame["sample"]])
    assert record["r2"] == pytest.approx(metrics.r2_score(true, predicted))
    assert record["mae"] == pytest.approx(metrics.mean_absolute_error(true, predicted))
    assert record["rmse"] == pytest.approx(metrics.root_mean_squared_error(true, predicted))
    each = metrics.r2_score(true, predicted, multioutput="raw_values")
    assert [of_one["r2"] for of_one in record["of_each"]] == pytest.approx(each)
    assert record["names"] == TARGETS
    told = Model.of(laboratory.folder / "run").predict(laboratory.folder / "both.csv")
    assert np.array_equal(told["predicted_risk"][frame["sample"]], predicted[:, 1])


def test_training_is_that_of_plain_torch(run, laboratory):
    _, weights = laboratory.trained(run)
    held_out = pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")["sample"]
    mine = np.setdiff1d(np.arange(ROWS), held_out)
    data = (standardised(FRAME[names].to_numpy(), mine) for names in (["a", "b", "c"], TARGETS))
    expected = by_hand(run, mine, *data, torch.nn.MSELoss())
    assert difference(weights, expected) < 1e-4


@pytest.mark.parametrize("strategy", [DDP, Entry("shared_memory", "shared_memory", {})])
def test_workers_follow_serial(run, laboratory, strategy):
    _, expected = laboratory.trained(run, "serial")
    _, weights = laboratory.trained(using(strategy, 2, run), strategy.label)
    for name, value in expected.items():
        torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-5)


def test_a_network_of_a_stack_is_the_lone_one(run, laboratory):
    run = vary(run, optimizer=Entry("Adam", "Adam", {"lr": 0.02}), folds=3)
    lone, weights = laboratory.trained(run)
    results, refused = stack(laboratory, [run, vary(run, seed=run.seed + 1)])
    assert refused == []
    (stacked, of_stack), _ = results
    assert difference(of_stack, weights) < 1e-5
    assert stacked["of_each"][1]["r2"] == pytest.approx(lone["of_each"][1]["r2"], rel=1e-4)


def test_each_number_is_scaled_by_the_training_samples_alone(run, laboratory):
    laboratory.trained(run)
    scaling = Predictor(laboratory.folder / "run").scaling
    held_out = pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")["sample"]
    of_training = FRAME[TARGETS].drop(index=held_out)
    assert scaling.centre == pytest.approx(of_training.mean().to_numpy())
    assert scaling.spread == pytest.approx(of_training.std(ddof=0).to_numpy())


def test_arrays_have_several_numbers_too(tmp_path):
    file = tmp_path / "mine.npz"
    np.savez(file, inputs=RANDOM.normal(size=(8, 2)), targets=np.arange(24).reshape(8, 3))
    made = npz.load(None, path=str(file), task="regression")
    assert made.task.outputs == 3
    assert made.names == ["number 1", "number 2", "number 3"]
    np.savez(file, inputs=np.ones((8, 2)), targets=np.full((8, 3), np.nan))
    with pytest.raises(ValueError, match=r"targets: \[0, 0\] is nan; expected finite"):
        npz.load(None, path=str(file), task="regression")
    np.savez(file, inputs=np.ones((8, 2)), targets=np.ones((8, 1)))
    with pytest.raises(ValueError, match=r"expected \(N,\) numbers, or \(N, T\) of T > 1 each"):
        npz.load(None, path=str(file), task="regression")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": TARGETS}, "expected a column, or, for `task: regression` or `multilabel`"),
        ({"target": ["cost"], "task": "regression"}, "found target .*a list of several"),
        ({"target": ["cost", "cost"], "task": "regression"}, "found target .*a list of several"),
        ({"target": ["cost", "lost"], "task": "regression"}, "has no column .lost."),
        ({"target": ["cost", "flat"], "task": "regression"}, "column flat cannot be predicted"),
    ],
)
def test_what_is_no_list_of_numbers_is_told(tmp_path, options, message):
    FRAME.assign(flat=1.0).to_csv(tmp_path / "both.csv", index=False)
    with pytest.raises(ValueError, match=message):
        table.load(None, path=str(tmp_path / "both.csv"), **options)


def test_data_of_one_number_and_of_several_are_not_compared():
    config = {
        "datasets": {
            "both": {"name": "table", "path": "t.csv", "target": TARGETS, "task": "regression"},
        },
        "studies": {"s": {"datasets": ["both", "diabetes"]}},
    }
    (found,) = fit._check_metrics(config, ("studies", "s"), config["studies"]["s"])
    assert "'diabetes' and 'both' have different numbers of targets" in found[1]


def test_a_study_of_several_numbers_says_how_well_each_is_predicted(tmp_path):
    FRAME.to_csv(tmp_path / "both.csv", index=False)
    project = copy(tmp_path / "project")
    options = {"name": "table", "path": str(tmp_path / "both.csv"), "target": TARGETS}
    project.configure(
        lambda config: config.update(
            datasets={"both": options | {"task": "regression"}},
            models={"mlp": config["models"]["mlp"]},
            studies={"s": {"datasets": ["both"], "folds": 2, "models": ["mlp"]}},
        )
    )
    project.call()
    folder = project.results / "studies" / "s"
    scores = pd.read_csv(folder / "per_output_table.csv").set_index("output")
    assert list(scores.index) == TARGETS
    total = pd.read_csv(folder / "accuracy_table.csv")["r2"][0]
    assert scores["r2"].mean() == pytest.approx(total)
    assert "Scores per output" in (folder / "report.html").read_text()
    assert (folder / "residuals_figure.png").exists()


def test_means_over_units_lead_no_table():
    """Of a study that names no metrics; each number has its own errors in another table."""
    several = {"datasets": {"it": {"name": "table", "path": "p", "target": ["a", "b"]}}}
    several["datasets"]["it"]["task"] = "regression"
    several["studies"] = {"first": {"datasets": ["it"]}}
    assert [metric.name for metric in own_metrics.of_study(several, "first")] == ["r2"]
    several["datasets"]["it"]["target"] = "a"
    assert [metric.name for metric in own_metrics.of_study(several, "first")] == [
        "r2",
        "rmse",
        "mae",
    ]


def test_equal_numbers_are_not_scaled_by_their_rounding():
    """The standard deviation of these is 1.4e-17."""
    targets = np.stack([np.full(7, 0.1), np.arange(7.0)], axis=1)
    assert regression.Regression(1).scaling(targets[:, 0])[1] == 1.0
    assert list(regression.Regression(2).scaling(targets)[1]) == [1.0, 2.0]
