"""Which columns of a table the best models use: permutation importance, in files and reports."""

import sys
import types

import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import usual
from project import copy
from sklearn.inspection import permutation_importance

from allcores_study.analysis import collect, comparison, products, tidy
from allcores_study.analysis.metrics import Metric
from allcores_study.analysis.study import Study
from allcores_study.config import grid, settings, sweeps
from allcores_study.data import storage
from allcores_study.data.batches import Batches
from allcores_study.datasets.table import load as load_table
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.serving import importance
from allcores_study.serving.predictor import Predictor

CONFIG = """
models:
  guess: {import: "sklearn.dummy:DummyClassifier"}
  tree: {import: "sklearn.tree:DecisionTreeClassifier", max_depth: [4, 5]}
  logistic: {import: "sklearn.linear_model:LogisticRegression"}
  ridge: {import: "sklearn.linear_model:Ridge"}
  mlp: {hidden: [4], batch_size: 16, epochs: 1, optimizer: {name: sgd, lr: 0.05}}
datasets:
  ill: {name: table, path: made.csv, target: ill, drop: [cost]}
  plain: {name: table, path: made.csv, target: ill, drop: [cost, town]}
  cost: {name: table, path: made.csv, target: cost, task: regression, drop: [ill]}
  tiny: {name: fake, count: 60, test: 0, size: 8, classes: 3}
studies:
  ill: {datasets: [ill], folds: 3, models: [guess, tree, logistic], select: 2, metrics: [roc_auc]}
  plain: {datasets: [plain], folds: 2, models: [logistic]}
  cost: {datasets: [cost], folds: 2, models: [ridge], metrics: [rmse], seeds: [0, 1]}
  images: {datasets: [tiny], folds: 2, models: [mlp]}
precision: fp32
memory_format: contiguous
"""
FACTS = products.StudyFacts("s", "serial", None, ())


def made():
    """A table in which `decides` decides, `town` matters a little, and `noise` does not."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(300, 2)), columns=["decides", "noise"]).round(4)
    frame["town"] = random.choice(["Bonn", "Kiel", "Ulm"], 300)
    found = 2 * frame["decides"] + frame["town"].map({"Bonn": 0, "Kiel": 1, "Ulm": -1})
    return frame.assign(ill=np.where(found > 0, "yes", "no"), cost=found.round(4))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = copy(tmp_path_factory.mktemp("columns"))
    made().to_csv(project.folder / "made.csv", index=False)
    project.config.write_text(CONFIG)
    project.call()
    return project


def read(project, study, name):
    return tidy.read(project.results / "studies" / study / f"{name}.csv")


def study_of(name):
    """A study of the project in this folder."""
    config = sweeps.expanded(settings.with_defaults(yaml.safe_load(CONFIG)))
    return Study(config, grid.expand(config), ResultsFolder("results/mine"), name)


def test_the_columns_of_the_two_best_models_are_in_the_order_in_which_they_matter(project):
    rows = read(project, "ill", "importance")
    assert set(rows["model"]) == {"tree", "logistic"}  # the sweep, not its candidates
    assert len(rows) == 2 * 3 * 3
    table = read(project, "ill", "columns_table")
    assert table["model"].iloc[0] == "logistic"
    for _, of_model in table.groupby("model"):
        assert list(of_model["column"]) == ["decides", "town", "noise"]
        assert of_model["importance"].iloc[0] > 0.2
    of_first = rows.query("model == 'logistic' and column == 'decides'")["importance"]
    mean, low, high, _ = comparison.corrected_t_test(of_first, 1 / 2)
    found = table.iloc[0]
    assert list(found[["importance", "low", "high"]]) == pytest.approx([mean, low, high])
    assert list(found[["positive", "runs"]]) == [1, 3]
    page = (project.results / "studies" / "ill" / "report.html").read_text()
    assert "The columns that logistic uses most are decides and town." in page
    assert 'id="columns_figure"' in page


def test_it_is_an_increase_of_errors_of_each_seed(project):
    rows = read(project, "cost", "importance")
    assert len(rows) == 3 * 4
    means = rows.groupby("column")["importance"].mean()
    assert means["decides"] > means["town"] > 0.1 > abs(means["noise"])
    assert read(project, "cost", "columns_table")["runs"].iloc[0] == 4


def test_a_study_of_images_has_none_and_loads_no_model(project, monkeypatch):
    assert list(read(project, "images", "importance")) == [
        *("dataset", "model", "schedule", "train_size", "split", "seed", "column", "importance")
    ]
    names = {file.name for file in (project.results / "studies" / "images").iterdir()}
    assert not {name for name in names if name.startswith("columns")}
    monkeypatch.chdir(project.folder)
    monkeypatch.delitem(sys.modules, "allcores_study.serving.predictor")
    frames = {name: read(project, "images", name) for name in ("runs", "epochs")}
    frames["predictions"] = pd.DataFrame(columns=[*tidy.RUN, "sample"])
    assert importance.of_best(study_of("images"), frames | {"datasets": {}}).empty
    assert "allcores_study.serving.predictor" not in sys.modules


def test_it_is_what_scikit_learn_finds_by_itself(project, monkeypatch):
    monkeypatch.chdir(project.folder)
    study = study_of("plain")
    rows = read(project, "plain", "importance")
    data = storage.open_dataset("results/mine/data/plain")
    predictions = pd.read_parquet(study.predictions)
    for run in study.runs:
        predictor = Predictor(f"results/mine/runs/{run.path}")
        split = f"fold {run.fold} of 2"
        samples = predictions[predictions["split"] == split]["sample"].to_numpy()
        inputs = Batches(data.inputs, predictor.scaling.mean, predictor.scaling.std).plain(samples)
        found = permutation_importance(
            *(predictor.model.estimator, inputs.numpy(), data.targets[samples]),
            **{"scoring": "accuracy", "n_repeats": 5, "random_state": 0},
        )
        own = rows[rows["split"] == split].set_index("column")["importance"]
        assert list(own.index) == ["decides", "noise"]
        assert own.tolist() == pytest.approx(found.importances_mean.tolist())


def test_a_damaged_run_is_left_out_and_named(project, tmp_path, monkeypatch, capsys):
    copied = project.copied(tmp_path / "copy")
    monkeypatch.chdir(copied.folder)
    study = study_of("plain")
    frames = collect.of_study(study)
    first, second = (copied.results / "runs" / run.path / "weights.pt" for run in study.runs)
    whole = first.read_bytes()
    first.write_bytes(whole[:-1])
    assert set(importance.of_best(study, frames)["split"]) == {"fold 1 of 2"}
    assert f"{first.parent.relative_to(copied.folder)} is left out" in capsys.readouterr().out
    second.unlink()
    found = importance.of_best(study, frames)
    assert found.empty
    assert products.load("columns_table").table(found, frames["runs"], FACTS).empty
    assert importance.of_best(study, frames | {"datasets": {}}).empty


def test_the_indicators_of_a_column_are_shuffled_together(tmp_path):
    made().to_parquet(tmp_path / "made.parquet")
    samples = load_table(None, path=str(tmp_path / "made.parquet"), target="ill", drop=["cost"])
    storage.write(tmp_path / "data", samples)
    data = storage.open_dataset(tmp_path / "data")
    places = importance.places_of(data)
    assert {name: len(own) for name, own in places.items()} == {"decides": 1, "noise": 1, "town": 3}

    def scores(inputs):
        towns = inputs[:, places["town"]]
        assert (towns.sum(axis=1) == 1).all()
        return np.stack([towns @ [0, 0, 1], towns @ [0, 1, 0]], axis=1)

    model = types.SimpleNamespace(scores=scores, task=usual(2), scaling=None)
    found = importance.of_model(model, data, np.arange(300), Metric.of("roc_auc"), 5, 0)
    assert found.pop("town") > 0.05
    assert found == {"decides": 0, "noise": 0}


@pytest.mark.parametrize(
    ("task", "target", "metric"),
    [("regression", ["cost", "weight"], "rmse"), ("multilabel", ["ill", "tall"], "micro_f1")],
)
def test_several_numbers_and_labels_have_it(task, target, metric, tmp_path):
    frame = made().assign(ill=lambda rows: (rows["ill"] == "yes").astype(int))
    frame = frame.assign(tall=frame["ill"], weight=frame["cost"]).drop(columns="town")
    frame.to_parquet(file := tmp_path / "made.parquet")
    drop = sorted({"ill", "tall", "cost", "weight"} - {*target})
    samples = load_table(None, path=str(file), target=target, task=task, drop=drop)
    storage.write(tmp_path / "data", samples)
    data = storage.open_dataset(tmp_path / "data")
    scaling = types.SimpleNamespace(centre=0.0, spread=1.0)
    model = types.SimpleNamespace(scores=lambda x: x[:, [0, 0]], task=data.task, scaling=scaling)
    found = importance.of_model(model, data, np.arange(300), Metric.of(metric), 5, 0)
    assert found["decides"] > 0.1
    assert found["noise"] == 0


def test_a_study_without_its_baseline_has_no_best_models(project):
    runs = read(project, "plain", "runs")
    others = runs.assign(strategy="ddp")
    assert importance.of_best_models(others, FACTS).empty
    assert importance.of_best_models(runs.assign(diverged="epoch 1"), FACTS).empty
    sized = pd.concat([runs.assign(train_size="10", train_samples=1), runs])
    assert set(importance.of_best_models(sized, FACTS)["train_size"]) == {"all"}


@pytest.mark.parametrize(
    ("columns", "runs", "repeats", "samples"),
    [(4, 8, 5, 312), (2, 2, 5, 1000), (30, 10, 1, 166), (100, 10, 1, 100)],
)
def test_many_columns_and_runs_are_shuffled_less(columns, runs, repeats, samples):
    assert importance.effort(columns, runs) == (repeats, samples)


def test_only_tables_of_2_to_100_columns_have_it(project, monkeypatch):
    monkeypatch.chdir(project.folder)
    study = study_of("plain")
    frames = collect.of_study(study)
    for least, most, has_it in ((2, 100, True), (3, 100, False), (1, 1, False)):
        monkeypatch.setattr(importance, "LEAST_COLUMNS", least)
        monkeypatch.setattr(importance, "MOST_COLUMNS", most)
        assert importance.of_best(study, frames).empty != has_it


@pytest.mark.parametrize(
    ("importance", "low", "named"),
    [
        ([9, 5, 1, 0], [8, 2, -1, -1], "columns that x uses most are a and b"),
        ([9, 5, 4, 0], [8, 2, 3, -1], "columns that x uses most are a, b and c"),
        ([9, 8, 7, 6], [8.5, 2, 1, -1], "column that x uses most is a"),
        ([9, 8, 7, 6], [1, 2, 1, -1], None),
        ([9, 8, 7, 6], [np.nan] * 4, None),
        ([9], [-1], None),
    ],
)
def test_columns_are_named_that_are_clearly_above_the_next(importance, low, named):
    settings = dict.fromkeys(comparison.TRAINED, "x")
    table = pd.DataFrame({"column": [*"abcd"][: len(low)], "importance": importance, "low": low})
    sentences = list(products.load("columns_table").sentences(table.assign(**settings)))
    assert sentences == ([f"The {named}."] if named else [])
