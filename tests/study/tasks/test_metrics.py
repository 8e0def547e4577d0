"""What a study is about: its metrics, from what runs predict to tables, figures and sentences."""

import math

import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import RUN
from project import copy
from scipy import special
from sklearn import metrics as of_sklearn

from allcores.files import read_json
from allcores_study.analysis import comparison, measures, metrics, tidy, wording
from allcores_study.analysis.metrics import Metric
from allcores_study.config import checks, grid, sweeps
from allcores_study.training import choosing

TABLES = """
models:
  mlp: {hidden: [16], batch_size: 16, epochs: 20, optimizer: {name: adam, lr: 0.01}}
datasets:
  patients: {name: table, path: patients.csv, target: ill, drop: [number], groups: hospital}
  costs: {name: table, path: patients.csv, target: cost, task: regression, drop: [ill, number]}
studies:
  first:
    datasets: [patients]
    folds: 2
    models: [mlp]
    strategies: [serial, ddp]
    workers: [2]
    metrics: [log_loss, macro_f1, roc_auc, brier, balanced_accuracy, accuracy]
  numbers:
    datasets: [costs]
    folds: 2
    models: [mlp]
    strategies: [serial]
    curves: true
precision: fp32
memory_format: contiguous
"""


def patients(count=120):
    random = np.random.default_rng(0)
    age, town = random.uniform(20, 80, count).round(), random.choice(["Ulm", "Bonn", "Kiel"], count)
    risk = age / 20 + 2 * (town == "Kiel") + random.normal(0, 0.7, count)
    return pd.DataFrame(
        {
            "age": age,
            "town": town,
            "hospital": np.arange(count) // 5,
            "number": np.arange(count),
            "ill": np.where(risk > 3.5, "yes", "no"),
            "cost": (1000 * risk).round(),
        }
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    project = copy(tmp_path_factory.mktemp("tables"))
    patients().to_csv(project.folder / "patients.csv", index=False)
    project.config.write_text(TABLES)
    project.call()
    return project


def expected(one):
    """Name -> what scikit-learn says of the predictions of a run."""
    scores = np.stack(one["scores"]).astype(float)
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    true, predicted = one["true"], one["predicted"]
    return {
        "accuracy": of_sklearn.accuracy_score(true, predicted),
        "balanced_accuracy": of_sklearn.balanced_accuracy_score(true, predicted),
        "macro_f1": of_sklearn.f1_score(true, predicted, average="macro"),
        "roc_auc": of_sklearn.roc_auc_score(true, probabilities[:, 1]),
        "log_loss": of_sklearn.log_loss(true, probabilities),
        "brier": of_sklearn.brier_score_loss(true, probabilities[:, 1]),
    }


def test_metrics_are_scikit_learns_on_the_written_predictions(finished):
    study = finished.results / "studies" / "first"
    predictions = pd.read_parquet(study / "predictions.parquet")
    runs = pd.read_csv(study / "runs.csv")
    keys = ["strategy", "split", "seed"]
    assert len(runs) == 4
    for key, one in predictions.groupby(keys):
        (row,) = runs[(runs[keys] == list(key)).all(axis=1)].to_dict("records")
        for name, value in expected(one).items():
            assert row[name] == pytest.approx(value, abs=1e-6), name
        assert row["score"] == row["log_loss"]
    table = pd.read_csv(study / "accuracy_table.csv")
    means = runs.groupby("strategy", sort=False)[["log_loss", "roc_auc"]].mean()
    assert table[["log_loss", "roc_auc"]].to_numpy() == pytest.approx(means.to_numpy())
    spread = runs.groupby("strategy", sort=False)["log_loss"].std()
    assert list(table["standard_deviation"]) == pytest.approx(list(spread))


def test_r2_is_undefined_if_one_of_several_numbers_is_constant():
    true = np.array([[1.0, 2.0], [1.0, 3.0]])
    assert math.isnan(measures.r2(true, true, None))
    assert measures.r2(true[:, 1], true[:, 1], None) == 1


def test_every_sample_is_predicted_once_out_of_its_fold_and_groups_stay_together(finished):
    predictions = pd.read_parquet(finished.results / "studies" / "first" / "predictions.parquet")
    groups = patients()["hospital"]
    for _, one in predictions.groupby(["strategy", "seed"]):
        assert sorted(one["sample"]) == list(range(120))
        assert one.groupby(groups[one["sample"]].to_numpy())["split"].nunique().max() == 1


def test_each_group_has_a_score(finished):
    study = finished.results / "studies" / "first"
    predictions = pd.read_parquet(study / "predictions.parquet")
    hospitals = patients()["hospital"].astype(str).to_numpy()
    assert (predictions["group"] == hospitals[predictions["sample"]]).all()
    table = pd.read_csv(study / "per_group_table.csv").set_index("strategy")
    names = [name.removeprefix("group ") for name in table if name.startswith("group ")]
    assert names == sorted(names, key=int)
    assert len(names) == 20, "the largest of 24"
    for (strategy, group), rows in predictions.groupby(["strategy", "group"]):
        if f"group {group}" in table:
            scores = []
            for _, one in rows.groupby("seed"):
                probabilities = special.softmax(np.stack(one["scores"]).astype(float), axis=1)
                scores.append(of_sklearn.log_loss(one["true"], probabilities, labels=[0, 1]))
            shown = table.loc[strategy, f"group {group}"]
            assert shown == pytest.approx(np.mean(scores), abs=1e-6)
    said = (study / "verdict.txt").read_text()
    assert "patients: log loss on the 20 largest groups, averaged over the models, ranges" in said
    assert "; 24 groups; 2 classes" in (study / "report.html").read_text()
    assert not (finished.results / "studies" / "numbers" / "per_group_table.csv").exists()


def test_the_leading_metric_is_what_the_verdict_is_about(finished):
    said = (finished.results / "studies" / "first" / "verdict.txt").read_text()
    assert "mlp reached log loss 0." in said
    assert "accuracy" not in said
    page = (finished.results / "studies" / "first" / "report.html").read_text()
    listed = "log loss, macro F1, ROC AUC, Brier score, balanced accuracy, accuracy"
    assert f"<th>metrics</th><td>{listed}</td>" in page


def test_numbers_have_tables_of_their_own(finished):
    study = finished.results / "studies" / "numbers"
    runs = pd.read_csv(study / "runs.csv")
    assert (runs["score"] == runs["r2"]).all()
    assert runs["r2"].mean() > 0.5
    assert list(pd.read_csv(study / "accuracy_table.csv")["mae"]) == [
        pytest.approx(runs["mae"].mean())
    ]
    assert (study / "learning_curve_figure.png").exists()
    assert not list(study.glob("confusion*_figure*"))
    assert "mlp reached R² 0." in (study / "verdict.txt").read_text()


def test_predictions_that_were_edited_are_refused(laboratory):
    laboratory.trained(RUN)
    place = laboratory.folder / "run"
    record, file = read_json(place / "metrics.json"), place / "predictions.parquet"
    wanted = [Metric.of("macro_f1")]
    assert 0 <= metrics.measured(record, (place), wanted)["macro_f1"] <= 1
    predictions = pd.read_parquet(file)
    predictions.assign(predicted=predictions["true"]).to_parquet(file)
    with pytest.raises(ValueError, match="is not what the run wrote"):
        metrics.measured(record, (place), wanted)


def test_another_leading_metric_makes_choices_anew():
    config = yaml.safe_load(TABLES)
    config["models"]["mlp"]["optimizer"]["lr"] = [0.001, 0.01]
    study = {"datasets": ["wine"], "folds": 2, "models": ["mlp"], "select": 2}
    codes = set()
    for asked in (["log_loss"], ["roc_auc"], ["roc_auc", "brier"]):
        config["studies"] = {"first": study | {"metrics": asked}}
        selection, *_ = grid.expand(sweeps.expanded(config)).selections.values()
        codes.add(choosing.made_of(selection, {}))
    assert len(codes) == 2


def finding(scores, base, metric):
    counts = {"held_out_samples": 5, "train_samples": 5, "seed": 0}
    row = dict.fromkeys(tidy.SETTINGS, "x") | counts
    runs = pd.DataFrame([row | {"split": f"fold {fold} of 2"} for fold in range(len(base))])
    compared = runs.assign(score=scores), runs.assign(score=base)
    return comparison.compare(*compared, tidy.SETTINGS, Metric.of(metric))["finding"].item()


@pytest.mark.parametrize(
    ("scores", "base", "metric", "is_equal"),
    [
        ([56.1 + 2e-7, 57.0 - 1e-6], [56.1, 57.0], "rmse", True),
        ([56.2, 57.0], [56.1, 57.0], "rmse", False),
        ([0.5 + 1e-7, 0.6], [0.5, 0.6], "accuracy", True),
        ([3e-8, 3.1e-8], [6e-8, 6.1e-8], "log_loss", False),
        ([3e-8, 3.1e-8], [6e-8, 6.1e-8], "brier", False),
    ],
)
def test_what_differs_by_rounding_is_equal_and_small_losses_differ(scores, base, metric, is_equal):
    assert (finding(scores, base, metric) == comparison.IDENTICAL) == is_equal


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e12])
def test_another_unit_of_the_targets_changes_no_verdict(unit):
    base = unit * np.array([5.0, 5.1, 4.9, 5.05, 5.2])
    better = base * [0.9, 0.905, 0.91, 0.89, 0.9]
    assert finding(better, base, "rmse") == finding(better / unit, base / unit, "rmse")
    assert finding(better, base, "rmse") != comparison.IDENTICAL
    assert finding(base * (1 + 1e-8), base, "rmse") == comparison.IDENTICAL


def test_less_is_better_where_it_is():
    signs = [Metric.of(name).sign for name in ("accuracy", "log_loss", "r2", "rmse")]
    assert signs == [1, -1, 1, -1]
    assert Metric.of("accuracy").text(0.96326) == "96.33%"
    assert Metric.of("rmse").text(54.3219) == "54.32"
    assert Metric.of("macro_f1").points(0.0123) == "1.23 points"


@pytest.mark.parametrize(
    ("change", "entry", "text"),
    [
        (
            {"metrics": ["acuracy"]},
            {},
            "found 'acuracy'; the targets are classes; known",
        ),
        ({"metrics": ["r2"]}, {}, "metrics.0: found 'r2'; the targets are classes"),
        ({"metrics": ["no.such:metric"]}, {}, "metrics.0: no.such:metric cannot be imported"),
        ({"datasets": ["diabetes"], "metrics": ["accuracy"]}, {}, "the targets are numbers"),
        ({"datasets": ["diabetes", "wine"]}, {}, "put them in separate studies"),
        ({"datasets": ["diabetes"], "folds": 500}, {}, "'diabetes' has 442 samples"),
        (
            {"datasets": ["diabetes"], "curves": True, "target_accuracy": 0.9},
            *({}, "target_accuracy: needs accuracy; 'diabetes' has numbers as targets"),
        ),
        (
            {"datasets": ["diabetes"]},
            *({"loss": {"name": "cross_entropy"}}, "CrossEntropyLoss does not take"),
        ),
        ({}, {"loss": {"name": "cross_entropy", "weight": "x"}}, "known: balanced"),
        ({}, {"loss": {"name": "mse", "weight": "balanced"}}, "; MSELoss does not have it"),
        ({}, {"augmentation": {"flip": True}}, "the shape (13,)"),
    ],
)
def test_metrics_and_models_that_do_not_suit_are_told(change, entry, text):
    config = yaml.safe_load(TABLES)
    config["models"]["mlp"] |= entry
    study = {"datasets": ["wine"], "folds": 3, "models": ["mlp"]} | change
    (finding,) = checks.findings(config | {"datasets": {}, "studies": {"first": study}})
    assert text in finding


@pytest.mark.parametrize(
    ("mean", "reach", "bounds", "expected"),
    [
        (0.5, 0.1, (None, None), (0.4, 0.6)),
        (0.5, 0.1, (0, 1), (0.401312, 0.598688)),
        (1.0, 0.2, (0, 2), (0.802625, 1.197375)),
        (2.0, 1.0, (0, None), (2 / math.exp(0.5), 2 * math.exp(0.5))),
        (0.0, 0.5, (None, 1), (1 - math.exp(0.5), 1 - math.exp(-0.5))),
    ],
)
def test_an_interval_lies_within_what_a_score_can_be(mean, reach, bounds, expected):
    assert comparison.within(mean, reach, *bounds) == pytest.approx(expected, abs=1e-6)
    low, high = comparison.within(mean, 1e-6, *bounds)
    assert (mean - low, high - mean) == pytest.approx((1e-6, 1e-6), rel=1e-3), "where it is narrow"


@pytest.mark.parametrize("scores", [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.5], [1.0, math.nan]])
def test_scores_without_spread_have_no_interval(scores):
    runs = pd.DataFrame({"score": scores, "split": "fold 0 of 3", "held_out_samples": 10})
    ends = comparison.interval(runs.assign(train_samples=20), metrics.ACCURACY)
    assert all(map(math.isnan, ends))


def test_the_widest_interval_is_all_that_a_score_can_be():
    assert comparison.within(0.5, 250.0, 0, 1) == pytest.approx((0, 1))
    low, high = comparison.within(1.2, 1e9, 0, None)
    assert 0 <= low < 1e-100
    assert math.isfinite(high)


def test_a_zero_by_rounding_has_no_sign():
    assert wording.number(metrics.ACCURACY, "+").write(-2.8e-17) == "+0.00"
    assert wording.number(metrics.ACCURACY, "-").write(-0.001) == "-0.10"


# Ties, numbers below the least normal one, 0 and 1.
EXTREME = np.array(
    [0.0, 5e-324, 1e-310, 1e-300, 1e-20, 1e-17, 0.25, 0.25, 0.5, 1 - 1e-16, 1.0, 1.0]
)


@pytest.mark.parametrize("classes", [2, 3])
def test_metrics_are_scikit_learns_of_extreme_probabilities(classes):
    random = np.random.default_rng(0)
    of_last = random.choice(EXTREME, 60)
    rest = np.stack([(1 - of_last) / (classes - 1)] * (classes - 1), axis=1)
    given = np.column_stack([rest, of_last])
    true = random.permutation(np.arange(60) % classes)
    predicted = given.argmax(axis=1)
    frame = pd.DataFrame({"true": true, "predicted": predicted, "probabilities": [*given]})
    kept = metrics.probabilities(frame)
    assert np.array_equal(kept, given)

    def of(name):
        return metrics.Metric.of(name).measure(true, predicted, kept)

    positives = [1] if classes == 2 else range(classes)
    pairs = [(true == k, given[:, k]) for k in positives]
    assert of("roc_auc") == np.mean([of_sklearn.roc_auc_score(*pair) for pair in pairs])
    assert of("pr_auc") == np.mean([of_sklearn.average_precision_score(*pair) for pair in pairs])
    assert of("log_loss") == of_sklearn.log_loss(true, given)
    assert of("brier") == of_sklearn.brier_score_loss(true, given)
    labels = np.stack([true == k for k in range(classes)], axis=1)
    found = metrics.Metric.of("mean_average_precision").measure(labels, given > 0.5, kept)
    assert found == of_sklearn.average_precision_score(labels, given)
