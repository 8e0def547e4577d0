"""Arrays of any shape, tables, numbers as targets: scaled, trained and scored."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import DDP, RUN, using, usual, vary
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from allcores_study.analysis import measures
from allcores_study.config import registry
from allcores_study.config.run import Entry
from allcores_study.data import storage
from allcores_study.data.batches import Batches
from allcores_study.data.scaling import Scaling
from allcores_study.datasets import npz, table
from allcores_study.planning import preflight
from allcores_study.serving import samples
from allcores_study.serving.predictor import Predictor
from allcores_study.training import losses

MSE = Entry("MSELoss", "MSELoss", {})
PLAIN = {"crop": 0, "flip": False}


def opened(tmp_path, made):
    storage.write(tmp_path / "data", made)
    return storage.open_dataset(tmp_path / "data")


def saved(tmp_path, frame, name="mine.csv"):
    file = tmp_path / name
    frame.to_csv(file, index=False) if name.endswith("csv") else frame.to_parquet(file)
    return str(file)


PEOPLE = pd.DataFrame(
    {
        "age": [20.0, 30, 40, 50, 60, 70],
        "town": ["Ulm", "Bonn", "Ulm", "Ulm", "Bonn", "Kiel"],
        "smokes": [True, False, False, True, True, False],
        "number": range(6),
        "ill": ["no", "no", "yes", "no", "yes", "yes"],
    }
)


@pytest.mark.parametrize("name", ["mine.csv", "mine.parquet"])
def test_a_table_becomes_numbers_and_indicators(tmp_path, name):
    made = table.load(None, path=saved(tmp_path, PEOPLE, name), target="ill", drop=["number"])
    dataset = opened(tmp_path, made)
    assert dataset.facts.classes == ["no", "yes"]
    assert list(dataset.targets) == [0, 0, 1, 0, 1, 1]
    names = [(column["name"], column["category"]) for column in dataset.facts.columns]
    towns = [("town", "Bonn"), ("town", "Kiel"), ("town", "Ulm")]
    assert names == [("age", None), *towns, ("smokes", "False"), ("smokes", "True")]
    assert list(dataset.inputs[5]) == [70, 0, 1, 0, 1, 0]
    known = registry.facts(
        Entry("t", "table", {"path": saved(tmp_path, PEOPLE, name), "target": "ill"})
    )
    assert (known.train, known.class_counts, known.names) == (6, [3, 3], ["no", "yes"])


def test_a_missing_value_becomes_the_mean_of_the_training_part(tmp_path):
    frame = PEOPLE.assign(age=[20, np.nan, 40, 60, np.nan, 90], town=[None, *PEOPLE["town"][1:]])
    file = saved(tmp_path, frame)
    gaps = "have missing values: age in 2, first in row 1; town in 1, first in row 0;"
    with pytest.raises(ValueError, match=rf"some of 6 rows \(counted from 0\) {gaps}"):
        table.load(None, path=file, target="ill")
    made = table.load(None, path=file, target="ill", drop=["number"], missing="mean")
    dataset = opened(tmp_path, made)
    scaling = Scaling.of(dataset, np.arange(4))
    batch = Batches(dataset.inputs, scaling.mean, scaling.std).plain(np.arange(6)).numpy()
    ages = np.array([20, 40, 40, 60, 40, 90])
    of_training = frame["age"][:4].dropna()
    assert batch[:, 0] == pytest.approx((ages - 40) / of_training.std(ddof=0), abs=1e-6)
    assert list(batch[:, 1]) == [0, 1, 0, 0, 1, 0], "Bonn"
    assert not batch[0, 1:4].any()


def test_a_small_spread_far_from_zero_is_kept(tmp_path):
    values = (1000 + np.arange(8)[:, None] / 64).astype(np.float32)
    made = storage.Samples((8, 1), [values], np.arange(8) / 2, 8, usual(None), dtype=np.float32)
    dataset = opened(tmp_path, made)
    scaling = Scaling.of(dataset, np.arange(8))
    batch = Batches(dataset.inputs, scaling.mean, scaling.std).plain(np.arange(8)).numpy()
    assert batch.std() == pytest.approx(1, abs=1e-3)
    assert (scaling.centre, scaling.spread) == (1.75, pytest.approx(1.1456, abs=1e-4))
    scaled = dataset.task.scaled(dataset.targets, scaling)
    assert scaled.dtype == np.float32
    answers = dataset.task.answers(torch.from_numpy(scaled), scaling)
    assert answers.numpy() == pytest.approx(dataset.targets, abs=1e-6)


@pytest.mark.parametrize("first", [1_700_000_000, 429_228_004_229_873])
def test_seconds_since_1970_are_told_apart_in_a_table(tmp_path, first):
    seconds = first + np.arange(8)
    frame = pd.DataFrame({"when": seconds, "y": np.arange(8) % 2})
    dataset = opened(tmp_path, table.load(None, path=saved(tmp_path, frame), target="y"))
    scaling = Scaling.of(dataset, np.arange(8))
    batch = Batches(dataset.inputs, scaling.mean, scaling.std).plain(np.arange(8))
    assert batch.dtype == torch.float32
    expected = (seconds - seconds.mean()) / seconds.std()
    assert batch[:, 0].numpy() == pytest.approx(expected, abs=1e-6)


def test_a_folder_of_arrays_is_what_an_archive_is(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    arrays = {
        "inputs": random.standard_normal((50, 2, 7)),
        "labels": np.arange(50) % 3,
        "times": np.arange(50),
        "test_inputs": random.standard_normal((5, 2, 7)),
        "test_labels": np.arange(5) % 3,
    }
    np.savez(tmp_path / "mine.npz", **arrays)
    (tmp_path / "mine").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "mine" / f"{name}.npy", array)
    monkeypatch.setattr(npz, "CHUNK", 100)
    archive = opened(tmp_path / "one", npz.load(None, path=tmp_path / "mine.npz"))
    folder = opened(tmp_path / "two", npz.load(None, path=str(tmp_path / "mine")))
    assert archive.record.files == folder.record.files
    assert np.array_equal(archive.inputs[:50], arrays["inputs"].astype(np.float32))
    known = registry.facts(Entry("mine", "npz", {"path": str(tmp_path / "mine")}))
    assert (known.train, known.test, known.times) == (50, 5, 50)
    arrays["inputs"][33, 1, 2] = np.inf
    np.save(tmp_path / "mine" / "inputs.npy", arrays["inputs"])
    with pytest.raises(ValueError, match=r"inputs\[33, 1, 2\] is inf"):
        opened(tmp_path / "two", npz.load(None, path=tmp_path / "mine"))
    (tmp_path / "mine" / "labels.npy").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"numpy\.save"):
        npz.load(None, path=tmp_path / "mine")


def signals(tmp_path, count=60):
    """Noisy waves of three frequencies; the number is their height."""
    random = np.random.default_rng(0)
    frequency, height = np.arange(count) % 3, random.uniform(0.5, 2, count)
    time = np.linspace(0, 2 * np.pi, 32)
    waves = height[:, None] * np.sin(
        (1 + 2 * frequency[:, None]) * time + random.random((count, 1))
    )
    inputs = (waves + 0.1 * random.standard_normal(waves.shape))[:, None]
    file = tmp_path / "waves.npz"
    np.savez(file, inputs=inputs, targets=height, groups=np.arange(count) // 4)
    return Entry("waves", "npz", {"path": str(file), "task": "regression"})


def test_a_network_learns_numbers_from_signals_and_predicts_in_their_unit(laboratory, tmp_path):
    run = vary(
        dataset=signals(tmp_path),
        model=Entry("convnet", "convnet", {"hidden": [8, 16]}),
        loss=MSE,
        optimizer=Entry("Adam", "Adam", {"lr": 0.02}),
        **PLAIN,
        **{"folds": 3, "fold": 0, "epochs": 30},
    )
    record, _ = laboratory.trained(run)
    predictions = pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")
    assert list(predictions) == ["sample", "true", "predicted"]
    pair = predictions["true"], predictions["predicted"]
    assert record["r2"] == pytest.approx(metrics.r2_score(*pair))
    assert record["mae"] == pytest.approx(metrics.mean_absolute_error(*pair))
    assert record["rmse"] == pytest.approx(metrics.root_mean_squared_error(*pair))
    assert record["r2"] > 0.5
    assert record["shape"] == [1, 32]
    predictor = Predictor(laboratory.folder / "run")
    inputs = np.load(tmp_path / "waves.npz")["inputs"].astype(np.float32)
    again = predictor.predictions(inputs[predictions["sample"]])[:, 0]
    assert np.array_equal(again, predictions["predicted"])
    np.save(tmp_path / "huge.npy", np.full((1, 1, 32), 1e300))
    with pytest.raises(ValueError, match=r"the value at \[0, 0, 0\] is not a finite"):
        samples.of(tmp_path / "huge.npy", predictor)


def test_a_table_is_read_by_the_names_of_its_columns(tmp_path):
    options = {"path": saved(tmp_path, PEOPLE), "target": "ill", "drop": ["number"]}
    predictor = predictor_of(options)
    new = PEOPLE.drop(columns="number")[["ill", "smokes", "town", "age"]]
    given = samples.of(saved(tmp_path, new, "new.csv"), predictor)
    as_trained = samples.of(saved(tmp_path, PEOPLE, "all.parquet"), predictor)
    assert np.array_equal(given.inputs, as_trained.inputs)
    assert np.array_equal(samples.of(new.set_index("ill"), predictor).inputs, given.inputs)
    with pytest.raises(ValueError, match="has no column age"):
        samples.of(saved(tmp_path, new.drop(columns="age"), "less.csv"), predictor)
    # A category that no training sample has is refused, or counts as none.
    rome = saved(tmp_path, new.assign(town=new["town"].mask(new.index == 1, "Rom")), "rome.csv")
    expected = r"the column town holds 'Rom', in 1 of 6 rows; known: 'Bonn', 'Kiel', 'Ulm'"
    with pytest.raises(ValueError, match=expected):
        samples.of(rome, predictor)
    towns = [column["name"] == "town" for column in predictor.columns]
    assert not samples.of(rome, predictor, unknown_as_none=True).inputs[1, towns].any()
    with pytest.raises(ValueError, match="age in 1, first in row 2"):
        gap = new.assign(age=new["age"].where(new.index != 2))
        samples.of(saved(tmp_path, gap, "gap.csv"), predictor)
    with pytest.raises(ValueError, match="has no rows"):
        samples.of(saved(tmp_path, new[:0], "none.csv"), predictor)


def predictor_of(options):
    """What samples.of() asks of the Predictor of a run that was trained on a table."""
    made = table.load(None, **options)
    run = SimpleNamespace(dataset=Entry("it", "table", options))
    shape = (len(made.columns),)
    return SimpleNamespace(
        run=run, names=made.names, columns=made.columns, shape=shape, task=made.task
    )


def test_codes_are_read_as_they_were_written(tmp_path):
    """Also where no other row says that they are texts."""
    codes = PEOPLE.assign(town=["02", "10", "x"] * 2)
    options = {"path": saved(tmp_path, codes, "codes.csv"), "target": "ill", "drop": ["number"]}
    predictor = predictor_of(options)
    all_rows = samples.of(options["path"], predictor).inputs
    without_x = saved(tmp_path, codes[codes["town"] != "x"], "four.csv")
    assert np.array_equal(samples.of(without_x, predictor).inputs, all_rows[[0, 1, 3, 4]])


@given(st.integers(2, 5), st.integers(2, 40), st.integers(0, 10**6))
def test_metrics_are_scikit_learns(classes, count, seed):
    random = np.random.default_rng(seed)
    true = random.integers(0, classes, count)
    probabilities = random.dirichlet(np.ones(classes), count)
    predicted, certain = probabilities.argmax(axis=1), np.eye(classes)[true]
    scores = {
        name: getattr(measures, name)(true, predicted, probabilities)
        for name in (
            *("accuracy", "balanced_accuracy", "macro_f1", "log_loss", "brier", "roc_auc"),
            *("sensitivity", "specificity", "f1", "pr_auc"),
        )
    }
    if len(np.unique(true)) == classes:
        recalled = metrics.recall_score(true, predicted, average=None, zero_division=0.0)
        assert scores["sensitivity"] == pytest.approx(np.mean(recalled[1 if classes == 2 else 0 :]))
        if classes == 2:
            assert scores["specificity"] == pytest.approx(recalled[0])
            assert scores["f1"] == pytest.approx(metrics.f1_score(true, predicted))
        else:
            assert scores["f1"] == pytest.approx(scores["macro_f1"])
            others = [(predicted[true != k] != k).mean() for k in range(classes)]
            assert scores["specificity"] == pytest.approx(np.mean(others))
        areas = metrics.average_precision_score(certain, probabilities, average=None)
        assert scores["pr_auc"] == pytest.approx(np.mean(areas[1 if classes == 2 else 0 :]))
    else:
        assert all(math.isnan(scores[name]) for name in ("sensitivity", "f1", "pr_auc"))
    assert scores["accuracy"] == (true == predicted).mean()
    recalls = [(predicted[true == one] == one).mean() for one in np.unique(true)]
    assert scores["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    assert scores["log_loss"] == pytest.approx(
        -np.log((probabilities * certain).sum(axis=1)).mean()
    )
    distance = ((probabilities - certain) ** 2).sum(axis=1).mean()
    assert scores["brier"] == pytest.approx(distance / 2 if classes == 2 else distance)
    assert math.isnan(scores["roc_auc"]) == (len(np.unique(true)) < classes)
    if classes == 2 and not math.isnan(scores["roc_auc"]):
        brier = metrics.brier_score_loss(true, probabilities[:, 1])
        assert scores["brier"] == pytest.approx(brier)


def test_rare_classes_can_count_as_much_as_others():
    labels = np.array([0] * 6 + [1] * 2)
    loss = losses.build(Entry("", "CrossEntropyLoss", {"weight": "balanced"}), usual(2), labels)
    scores = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    targets = torch.from_numpy(labels)
    plain = torch.nn.functional.cross_entropy(scores, targets, reduction="none")
    expected = (plain[:6].mean() + plain[6:].mean()) / 2
    torch.testing.assert_close(loss(scores, targets), expected)


def test_balanced_workers_follow_serial(laboratory):
    balanced = Entry("CrossEntropyLoss", "CrossEntropyLoss", {"weight": "balanced"})
    run = vary(RUN, loss=balanced)
    _, expected = laboratory.trained(run, "serial")
    _, weights = laboratory.trained(using(DDP, 2, run), "ddp")
    for key, value in expected.items():
        torch.testing.assert_close(weights[key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (1, 32), (3, 8, 9), (1, 8, 8)])
def test_files_of_images_are_for_what_was_trained_on_such(tmp_path, shape):
    (tmp_path / "one.png").touch()
    with pytest.raises(ValueError, match="not on image files"):
        samples.of(tmp_path, SimpleNamespace(shape=shape, classes=None))


def test_whole_numbers_may_be_words(tmp_path):
    inputs = np.random.default_rng(0).integers(0, 50, (40, 7))
    np.savez(tmp_path / "mine.npz", inputs=inputs, labels=np.arange(40) % 2)
    (note,) = npz.load(None, path=str(tmp_path / "mine.npz")).notes
    assert "whole numbers (int64) and are scaled as measurements are" in note


def test_other_words_are_another_trial(tmp_path):
    """Also in a file of the same shape: an embedding may not take them."""
    keys = set()
    for words in (50, 60):
        inputs = np.zeros((40, 7), int)
        inputs[30] = words
        np.savez(tmp_path / f"{words}.npz", inputs=inputs, labels=np.arange(40) % 2)
        entry = Entry("mine", "npz", {"path": str(tmp_path / f"{words}.npz"), "inputs": "tokens"})
        key, trial = preflight.trial(vary(dataset=entry, folds=2, fold=0, **PLAIN))
        assert trial["vocabulary"] == words + 1
        keys.add(key)
    assert len(keys) == 2
