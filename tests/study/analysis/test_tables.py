"""Tables from runs whose numbers can be checked by hand."""

import dataclasses
import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from conftest import usual, vary
from scipy import special

from allcores_study.analysis import comparison, methods, products, tidy, wording, writing
from allcores_study.analysis.figures import utilisation
from allcores_study.analysis.metrics import Metric
from allcores_study.config.run import Entry
from allcores_study.data import storage
from allcores_study.data.facts import Facts
from allcores_study.datasets.table import load as load_table

FACTS = products.StudyFacts(
    study="s", baseline="serial", target=0.85, references=(), base="serial on 1 core"
)


def made(strategy, workers, fold, accuracy, seconds):
    """The metrics of a run with the given accuracy on 10 samples of two classes."""
    run = vary(strategy=Entry(strategy, strategy, {}), workers=workers, folds=2, fold=fold)
    right = round(10 * accuracy)
    epochs = [
        {"epoch": 1, "loss": 2.0, "lr": 0.1, "seconds": 99.0, "phases": {"compute": 99.0}},
        {"epoch": 2, "loss": 1.0, "lr": 0.1, "seconds": seconds, "phases": {"compute": seconds}},
    ]
    return {
        "settings": json.loads(run.to_json()),
        "stacked": False,
        "names": ["0", "1"],
        "accuracy": accuracy,
        "loss": 0.5,
        "confusion": [[5, 0], [10 - right, right - 5]],
        "epochs": epochs,
        "training_seconds": 99.0 + seconds,
        "train_samples": 100,
        "ordered": False,
        "grouped": False,
        "held_out_samples": 10,
        "held_out_unknown": 0,
        "started": 0.0,
        "ended": 200.0,
        "sessions": [{"started": 0.0, "ended": 200.0}],
        "diverged": None,
        "conditions": {"exclusive": True, "cores_of_call": 2},
        "start_up_seconds": 3.0,
        "parameters": 120,
        "cpu_seconds": 100.0,
        "resumed": 0,
        "peak_memory_bytes": 1e8,
        "cores": {"pinned": [0], "contended": False, "stopped_seconds": 0.0},
        "machine": {"cores_allowed": 2, "host": "h", "processor": "p", "torch": "t"},
    }


def runs_of(all_metrics):
    """Their frame, accuracy being what the study is about."""
    return tidy.runs(all_metrics, [{"accuracy": one["accuracy"]} for one in all_metrics])


RUNS = [
    made("serial", 1, 0, 0.8, 10.0),
    made("serial", 1, 1, 0.9, 12.0),
    made("ddp", 2, 0, 0.7, 5.0),
    made("ddp", 2, 1, 0.9, 6.0),
]


def test_accuracy_table():
    runs = runs_of(RUNS)
    runs["core_seconds"] = runs["training_seconds"] * runs["cores"]
    table = products.load("accuracy_table").table(runs, FACTS)
    assert list(table["strategy"]) == ["serial", "ddp"]
    assert list(table["runs"]) == [2, 2]
    assert list(table["accuracy"]) == pytest.approx([0.85, 0.8])
    assert list(table["standard_deviation"]) == pytest.approx([0.0707107, 0.1414214])
    # Student's t for one degree of freedom: 12.706.
    # The spread of the mean: 0.0707 x sqrt(1/2 + 10/100), folds sharing their training samples.
    reaches = [12.7062 * s * math.sqrt(0.6) for s in (0.0707107, 0.1414214)]
    # Of logits, so that both ends are accuracies.
    for (_, row), reach in zip(table.iterrows(), reaches, strict=True):
        mean = row["accuracy"]
        logits = special.logit([row["low_95"], mean, row["high_95"]])
        assert np.diff(logits) == pytest.approx(reach / (mean * (1 - mean)), rel=1e-5)
    assert list(table["seconds"]) == pytest.approx([110, 104.5])
    assert list(table["core_seconds"]) == pytest.approx([110, 209])


def test_the_baseline_is_on_its_fewest_cores():
    runs = [made("serial", workers, fold, 0.8, 9.0) for workers in (2, 1) for fold in (0, 1)]
    assert set(comparison.of_baseline(runs_of(runs), "serial")["cores"]) == {1}


def test_stacked_runs_are_timed_under_conditions_of_their_own():
    runs = runs_of(RUNS)
    assert tidy.conditions(runs)[0].startswith("alone, ")
    assert tidy.conditions(runs.assign(stacked=True))[0].startswith("stacked, ")


def test_cores_of_several_machines_are_added():
    runs = runs_of(RUNS).assign(machine_host=["a", "b"] * 2, cores_of_call=8)
    assert tidy.cores_available(runs) == 16


def test_candidates_are_shown_with_what_varies():
    label = dict.fromkeys(tidy.SETTINGS, "x") | {"candidate": ["a", "b"]}
    frame = pd.DataFrame(label | {"swept_lr": [0.1, 0.2], "swept_depth": 1, "score": [0.8, 0.9]})
    frame = frame.assign(chosen=1, core_hours=0.1)
    heads = writing.sheet("sweep_table", frame, FACTS)["heads"]
    assert [head["name"] for head in heads] == ["candidate", "lr", "score", "chosen", "core hours"]


def test_methods_say_what_the_data_are():
    columns = [{"name": "age", "category": None}]
    columns += [{"name": "town", "category": town} for town in ("Bonn", "Ulm")]
    rows = Facts(60, 0, (3,), "float32", columns=columns, outputs=2)
    rows = dataclasses.replace(rows, names=["no", "yes"], class_counts=[40, 20])
    assert methods._of_data(rows) == (
        "60 rows of 1 number and 1 column of categories, one-hot encoded, numbers standardised "
        "with mean and standard deviation of the training set; 2 classes (no: 40, yes: 20)"
    )
    images = Facts(90, 10, (3, 8, 8), outputs=20, names=list(range(20)), class_counts=[5] * 20)
    said = methods._of_data(images)
    assert said.startswith("100 samples of 3 x 8 x 8 uint8 values, channels")
    assert said.endswith("20 classes (5 to 5 samples each, in the training set)")
    assert methods._of_data(Facts(9, 0, (2,), "float32", "regression")).endswith(
        "targets standardised with mean and standard deviation of the training set for training"
    )
    texts = dataclasses.replace(rows, columns=columns[1:])
    assert methods._of_data(texts).startswith("60 rows of 1 column of categories, one-hot encoded;")


def test_a_metric_that_some_runs_lack_is_named():
    runs = runs_of(
        [*RUNS, made("ring", 2, 0, 0.9, 5.0) | {"diverged": {"epoch": 1, "step": None, "lr": 1}}]
    )
    runs["roc_auc"] = [0.5, math.nan, 0.6, math.nan, math.nan]
    facts = dataclasses.replace(FACTS, metrics=(Metric.of("accuracy"), Metric.of("roc_auc")))
    (said,) = products.load("accuracy_table").sentences(runs, facts)
    assert said.startswith("ROC AUC is undefined for the test samples of 2 of 4 runs")


def test_how_it_was_split_is_said():
    by_time = [dict(one, ordered=True) for one in RUNS]
    by_group = [dict(one, grouped=True) for one in RUNS]
    run = vary(folds=2, fold=0, schedule=Entry("warm", "cosine", {"warm_up": 0.25}))
    for rows, how in (
        (RUNS, "stratified 2-fold cross-validation"),
        (by_time, "2 folds, each scored after training on the earlier ones"),
        (by_group, "2-fold cross-validation, groups held out as a whole"),
    ):
        ((_, said),) = methods._splits(runs_of(rows), [run], FACTS, {})
        assert said == f"{how}; 100 training samples, 10 test samples"
    brought = {run.dataset.label: Facts(20, 0, (3,), own_folds=[5, 5])}
    ((_, said),) = methods._splits(runs_of(RUNS), [run], FACTS, brought)
    assert said.startswith("2 folds that the data bring; ")
    assert ("learning-rate schedules", "warm with warm up 0.25") in [*methods._of_networks([run])]


def test_speed_table_leaves_out_the_first_epoch_and_names_its_baseline():
    table = products.load("speed_table").table(runs_of(RUNS), tidy.epochs(RUNS), FACTS)
    serial, ddp = table.to_dict("records")
    assert serial["samples_per_second"] == pytest.approx((100 / 10 + 100 / 12) / 2)
    assert (ddp["slowest"], ddp["fastest"]) == pytest.approx((100 / 6, 100 / 5))
    assert serial["speedup"] == serial["efficiency"] == 1
    assert ddp["speedup"] == pytest.approx(2)
    assert ddp["efficiency"] == pytest.approx(1)
    assert ddp["compute"] == pytest.approx(1)


def test_a_single_epoch_is_better_than_none():
    one = [metrics | {"epochs": metrics["epochs"][:1]} for metrics in RUNS]
    table = products.load("speed_table").table(runs_of(one), tidy.epochs(one), FACTS)
    assert table["samples_per_second"].iloc[0] == pytest.approx(100 / 99)


def test_a_phase_that_a_strategy_does_not_have_is_left_empty():
    ring = made("ring", 2, 0, 0.9, 6.0)
    ring["epochs"][1]["phases"] = {"compute": 4.0, "all_gather": 2.0}
    runs = [*RUNS, ring]
    table = products.load("speed_table").table(runs_of(runs), tidy.epochs(runs), FACTS)
    assert table["all_gather"].isna().tolist() == [True, True, False]
    assert table["all_gather"].iloc[2] == pytest.approx(2 / 105)


def test_staleness_is_added_up_over_epochs():
    assert tidy.staleness(RUNS).empty
    hogwild = made("hogwild", 2, 0, 0.9, 6.0)
    for epoch, counts in zip(hogwild["epochs"], ([3, 1], [2, 0, 5]), strict=True):
        epoch["staleness"] = counts
    table = tidy.staleness([*RUNS, hogwild])
    assert table["staleness"].tolist() == [0, 1, 2]
    assert table["updates"].tolist() == [5, 1, 5]
    assert set(table["strategy"]) == {"hogwild"}


def test_per_class_table_pools_folds():
    table = products.load("per_class_table").table(tidy.classes(RUNS))
    assert list(table["class 0"]) == [1.0, 1.0]
    assert list(table["class 1"]) == pytest.approx([(3 + 4) / 10, (2 + 4) / 10])


@pytest.fixture
def described(tmp_path):
    """A function from a frame and options of a table to (that frame, its data_table)."""

    def of(frame, **options):
        frame.to_parquet(file := tmp_path / "mine.parquet")
        samples = load_table(None, path=str(file), missing="mean", **options)
        storage.write(tmp_path / "data", samples)
        data = storage.open_dataset(tmp_path / "data")
        products.load("data_table").table({"mine": data}).to_csv(tmp_path / "t.csv", index=False)
        return frame, tidy.read(tmp_path / "t.csv")

    return of


PEOPLE = pd.DataFrame(
    {
        "age": [50, 62, None, 40, 70, 32],
        "town": ["08", None, "10", "08", None, "08"],
        "cost": [1500, 90_210, 3000, 1800, 2750, 3333],
        "ill": ["no", "no", "no", "yes", "yes", "yes"],
    }
)


def test_the_data_are_described_as_pandas_does_by_class(described):
    frame, table = described(PEOPLE, target="ill")
    rows = table.set_index(["column", table["category"].fillna("")])
    ages = frame.groupby("ill")["age"]
    for name, own in ages:
        assert rows.loc[("age", ""), f"class {name}"] == f"{own.mean():.1f} ({own.std():#.3g})"
    assert rows.loc[("age", ""), ["known", "missing"]].tolist() == [5, 1]
    assert rows.loc[("town", "08")].tolist()[2:] == [4, 2, "3 (75.0%)", "1 (50.0%)", "2 (100.0%)"]
    assert rows.loc[("town", "10"), "class yes"] == "0 (0.0%)"
    cost = frame["cost"]
    assert rows.loc[("cost", ""), "all"] == f"{cost.mean():,.0f} ({cost.std():,.0f})"
    assert rows.loc[("samples", ""), "class no"] == "3 (50.0%)"
    _, table = described(PEOPLE.assign(age=PEOPLE["age"] + 100), target="ill")
    assert table.loc[table["column"] == "age", "class no"].tolist() == ["156 (8.49)"]


def test_the_data_of_numbers_to_predict_and_of_many_classes_are_described_as_a_whole(described):
    _, table = described(PEOPLE, target="cost", task="regression")
    assert list(table)[-1] == "all"
    many = pd.DataFrame({f"x{n}": np.arange(22.0) for n in range(150)} | {"y": [*range(11)] * 2})
    _, table = described(many, target="y")
    assert list(table)[-1] == "all"
    assert len(table) == 1 + 100
    assert products.load("data_table").table({}).empty


def _refuse(*_):
    raise ValueError("samples of one class")


def test_a_group_on_which_the_metric_is_undefined_has_an_empty_cell(monkeypatch):
    scores = np.array([[0, 1], [1, 0], [0, 1], [0, 1]], np.float32)
    columns = {"sample": range(4), "true": [1, 0, 1, 1], "predicted": [1, 0, 1, 1]}
    labels = dict.fromkeys(tidy.RUN, "x") | {"group": ["a", "a", "b", "b"]}
    predictions = pd.DataFrame(labels | columns | {"scores": [*scores]})
    facts = dataclasses.replace(FACTS, metrics=(Metric.of("roc_auc"),))
    module = products.load("per_group_table")
    table = module.table(predictions, facts)
    assert table.loc[0, "group a"] == 1
    assert np.isnan(table.loc[0, "group b"])
    assert list(module.sentences(table, predictions, facts)) == [], "nothing to compare"
    other = predictions.assign(group=["a", "a", "b", "c"], sample=range(4, 8))
    other["true"] = [1, 0, 0, 0]
    third = pd.concat([predictions, other.assign(group="d")])
    (said,) = module.sentences(module.table(third, facts), third, facts)
    assert "on the 2 groups that have one, of 3, averaged" in said
    monkeypatch.setattr(Metric, "measure", _refuse)  # as a user's metric may
    assert module.table(predictions, facts)[["group a", "group b"]].isna().all(axis=None)
    assert module.table(predictions.drop(columns="group"), facts) is None


def test_it_is_said_how_good_it_is_to_guess():
    runs = [run | {"confusion": [[6, 1], [1, 2]], "names": ["no", "yes"]} for run in RUNS]
    (sentence,) = products.load("per_class_table").sentences(tidy.classes(runs))
    assert sentence.endswith("always predicting no is right for 70.0% of the samples.")


def test_classes_may_be_called_like_columns(tmp_path):
    names = ["model", "true"]
    classes = tidy.classes([run | {"names": names} for run in RUNS])
    table = products.load("per_class_table").table(classes)
    table.to_csv(tmp_path / "table.csv", index=False)
    read = tidy.read(tmp_path / "table.csv")
    assert list(read["class true"]) == pytest.approx([(3 + 4) / 10, (2 + 4) / 10])
    assert set(read["model"]) == {"mlp"}


def test_the_confusion_of_classes_has_true_ones_in_rows():
    measures = usual(3).measured(np.array([0, 0, 1]), np.array([0, 2, 1]))
    assert measures == {"accuracy": 2 / 3, "confusion": [[1, 0, 1], [0, 1, 0], [0, 0, 0]]}


def test_tables_are_readable_pages():
    frame = pd.DataFrame(
        {
            "dataset": ["d", "d"],
            "model": ["<b>", "c"],
            "accuracy": [0.5, 1],
            "low_95": np.nan,
        }
    )
    formats = {"accuracy": wording.percent(1), "low_95": wording.percent(1)}
    table = writing.cells(frame, formats, ["accuracy"]) | {"name": "accuracy_table"}
    page = writing.page_of(title="t", leading=[table], methods=[], line="")
    assert '<p class="shared">dataset: d</p>' in page
    heads = re.findall("<th class=(.*?)</th>", page)
    assert heads == ['"">model', '"number">accuracy<small>%</small>']
    rows = re.findall("<td class=(.*?)</td>", page)
    assert rows[:2] == ['"" data-value="&lt;b&gt;">&lt;b&gt;', '"number" data-value="0.5">50.0']
    assert "accuracy_table.csv has all columns" in page
    whole = writing.cells(frame, formats)
    assert [head["name"] for head in whole["heads"]] == ["model", "accuracy", "low 95"]
    assert [row[-1][0]["text"] for row in whole["rows"]] == ["", ""], "of a missing value"


def test_a_cell_of_which_runs_diverged(tmp_path):
    broken = RUNS[1] | dict.fromkeys(("accuracy", "loss", "confusion"))
    broken |= {"diverged": {"epoch": 2, "step": 7, "lr": 0.5}}
    all_metrics = [RUNS[0], broken, *RUNS[2:]]
    runs_of(all_metrics).to_csv(tmp_path / "runs.csv", index=False)
    runs = tidy.read(tmp_path / "runs.csv").assign(core_seconds=1.0)
    serial, ddp = products.load("accuracy_table").table(runs, FACTS).to_dict("records")
    assert (serial["runs"], serial["diverged"], serial["accuracy"]) == (2, 1, 0.8)
    assert (ddp["runs"], ddp["diverged"]) == (2, 0)
    assert len(tidy.epochs(all_metrics)) == 6
    assert set(tidy.classes(all_metrics)["split"]) == {"fold 0 of 2", "fold 1 of 2"}
    assert len(tidy.classes(all_metrics)) == 6
    assert ddp["pairs"] == 1


def test_where_all_diverged_there_are_tables_without_rows(tmp_path):
    broken = [run | {"diverged": {"epoch": 1, "step": 1, "lr": 1.0}, "epochs": []} for run in RUNS]
    for name in ("epochs", "classes", "confusion", "staleness"):
        getattr(tidy, name)(broken).to_csv(tmp_path / name, index=False)
        assert list(tidy.read(tmp_path / name).columns[:5]) == tidy.RUN[:5]
        assert tidy.read(tmp_path / name).empty


@pytest.mark.parametrize("label", ["NA", "None", "nan", "null", "007", "1e3", "true"])
def test_labels_stay_what_they_are(tmp_path, label):
    run = vary(model=Entry(label, "mlp", {}), folds=2, fold=0)
    settings = json.loads(run.to_json())
    runs_of([RUNS[0] | {"settings": settings}]).to_csv(tmp_path / "runs.csv", index=False)
    assert list(tidy.read(tmp_path / "runs.csv")["model"]) == [label]


def test_a_confusion_of_many_classes_is_as_long_as_its_samples():
    counts = np.zeros((1000, 1000), int)
    counts[3, 7] = 20
    names = [str(number) for number in range(1000)]
    table = tidy.confusion([RUNS[0] | {"names": names, "confusion": counts.tolist()}])
    assert len(table) == 1001
    assert table.loc[table["samples"] > 0, ["true", "predicted", "samples"]].values.tolist() == [
        ["3", "7", 20]
    ]
    assert list(dict.fromkeys(table["true"])) == names


def test_utilisation_adds_runs_up_and_cuts_pauses_out():
    # Two runs side by side, each on one core for 10 s; an hour later a third on two cores for 5 s.
    rows = [("a", 0, 0), ("a", 10, 10), ("b", 0, 0), ("b", 10, 10), ("c", 3600, 0), ("c", 3605, 10)]
    frame = pd.DataFrame(rows, columns=["strategy", "time", "cpu_seconds"])
    for column in [*tidy.RUN, "session"]:
        frame[column] = frame["strategy"] if column == "strategy" else 0
    edges, busy = utilisation.busy_cores(frame)
    assert edges[-1] == pytest.approx(15)
    assert sum(busy.values()) == pytest.approx(np.full(utilisation.BINS, 2.0))
    assert busy["a"] == pytest.approx(np.where(edges[1:] < 10.001, 1.0, 0.0))


def test_the_learning_curve_of_a_cell_is_the_mean_of_its_runs():
    epochs = tidy.with_elapsed(tidy.epochs(RUNS[:2]))
    assert list(epochs["elapsed"]) == [99, 109, 99, 111]
    curve = tidy.learning_curve(epochs.assign(score=[1.0, 2.0, 3.0, 6.0]), "score")
    assert list(curve["elapsed"]) == [99, 110]
    assert curve[["mean", "low", "high"]].to_numpy().tolist() == [[2, 1, 3], [4, 2, 6]]


def test_of_a_chosen_model_all_choices_are_described():
    chosen = [vary(fold=k, optimizer=Entry("Adam", "Adam", {"lr": k / 100})) for k in (1, 2)]
    (_, said), *_ = methods._models(runs_of(RUNS[:2]), chosen)
    assert "Adam with learning rate 0.01" in said
    assert "Adam with learning rate 0.02" in said


def test_numbers_that_round_to_a_thousand_have_no_power():
    from allcores_study.analysis.tables import data

    assert [data._text(number) for number in (12.345, 999.4, 999.7, 1234.5)] == [
        *("12.3", "999", "1,000", "1,234")
    ]
