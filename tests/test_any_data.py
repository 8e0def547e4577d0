"""Arrays of any shape, tables, numbers as targets: scaled, trained and scored."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import DDP, RUN, using, vary

from allcores.data import storage
from allcores.data.batches import Batches
from allcores.data.scaling import Scaling
from allcores.datasets import npz, table
from allcores.serving import samples
from allcores.serving.predictor import Predictor
from allcores.study import registry
from allcores.study.run import Choice
from allcores.training import losses

MSE = Choice("MSELoss", "MSELoss", {})
PLAIN = {"crop": 0, "flip": False}


def opened(tmp_path, made):
    storage.write(tmp_path / "data", made)
    return storage.open_dataset(tmp_path / "data")


def saved(tmp_path, frame, name="mine.csv"):
    file = tmp_path / name
    frame.to_csv(file, index=False) if name.endswith("csv") else frame.to_parquet(file)
    return str(file)


ONES = np.ones(4)
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
    assert dataset.classes == ["no", "yes"]
    assert list(dataset.targets) == [0, 0, 1, 0, 1, 1]
    names = [(column["name"], column["category"]) for column in dataset.info["columns"]]
    towns = [("town", "Bonn"), ("town", "Kiel"), ("town", "Ulm")]
    assert names == [("age", None), *towns, ("smokes", "False"), ("smokes", "True")]
    assert list(dataset.inputs[5]) == [70, 0, 1, 0, 1, 0]
    known = registry.metadata(
        Choice("t", "table", {"path": saved(tmp_path, PEOPLE, name), "target": "ill"})
    )
    assert (known.train, known.smallest_class, known.classes) == (6, 3, 2)


def test_what_is_held_out_has_no_say_in_how_a_table_is_scaled(tmp_path):
    made = table.load(None, path=saved(tmp_path, PEOPLE), target="ill", drop=["number"])
    dataset = opened(tmp_path, made)
    train = np.array([0, 1, 2, 3])
    dataset = dataset.seen_by(train)
    assert dataset.unseen == (2,), "no training sample is of Kiel"
    assert (dataset.shape, len(dataset.columns)) == ((5,), 5)
    scaling = Scaling.of(dataset, train)
    batch = Batches(dataset.inputs, scaling.mean, scaling.std).plain(np.arange(6)).numpy()
    ages = PEOPLE["age"].to_numpy()
    assert batch[:, 0] == pytest.approx((ages - ages[:4].mean()) / ages[:4].std(), abs=1e-6)
    assert list(batch[:, 1]) == [0, 1, 0, 0, 1, 0]
    assert list(batch[:, 2]) == [1, 0, 1, 1, 0, 0]


def test_a_missing_value_becomes_the_mean_of_the_training_part(tmp_path):
    frame = PEOPLE.assign(age=[20, np.nan, 40, 60, np.nan, 90], town=[None, *PEOPLE["town"][1:]])
    file = saved(tmp_path, frame)
    gaps = r"of 6 rows \(counted from 0\): age in 2, first in row 1; town in 1, first in row 0;"
    with pytest.raises(ValueError, match=gaps):
        table.load(None, path=file, target="ill")
    made = table.load(None, path=file, target="ill", drop=["number"], missing="mean")
    dataset = opened(tmp_path, made)
    scaling = Scaling.of(dataset, np.arange(4))
    assert scaling.mean[0] == pytest.approx(40)
    batch = Batches(dataset.inputs, scaling.mean, scaling.std).plain(np.arange(6)).numpy()
    assert batch[1, 0] == batch[2, 0] == batch[4, 0] == 0
    assert not batch[0, 1:4].any()


def test_a_small_spread_far_from_zero_is_kept(tmp_path):
    values = (1000 + np.arange(8)[:, None] / 64).astype(np.float32)
    made = storage.Samples((8, 1), [values], np.arange(8) / 2, None, 8, dtype=np.float32)
    dataset = opened(tmp_path, made)
    scaling = Scaling.of(dataset, np.arange(8))
    batch = Batches(dataset.inputs, scaling.mean, scaling.std).plain(np.arange(8)).numpy()
    assert batch.std() == pytest.approx(1, abs=1e-3)
    assert (scaling.centre, scaling.spread) == (1.75, pytest.approx(1.1456, abs=1e-4))
    scaled = scaling.scaled(dataset.targets)
    assert scaled.dtype == np.float32
    assert scaling.original(scaled) == pytest.approx(dataset.targets, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "sick"}, "has no column sick; found age, town"),
        ({"target": "ill", "drop": ["size"]}, "has no column size"),
        ({"target": "town", "task": "regression"}, "the column town holds no numbers"),
        ({"target": "ill", "drop": ["age", "town", "smokes", "number"]}, "and 0 features"),
        ({"target": ["ill"]}, r"found the column \['ill'\]; expected a name"),
        ({"target": "ill", "groups": 1}, "found the column 1; expected a name, in quotes"),
    ],
)
def test_a_table_that_cannot_be_used_is_told(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        table.load(None, path=saved(tmp_path, PEOPLE), **options)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.date_range("2026-01-01", periods=30), "holds Timestamp.*expected numbers or texts"),
        (pd.date_range("2026-01-01", periods=30).astype(str), "has 30 different texts in 30 rows"),
        (pd.to_timedelta(np.arange(30), unit="h"), "holds Timedelta"),
        ([[1, 2]] * 30, "expected numbers or texts, or `drop`"),
        (["x"] * 29 + [1], None),
    ],
)
def test_dates_and_names_are_no_categories(tmp_path, column, message):
    frame = pd.DataFrame({"x": range(30), "y": ["a", "b"] * 15, "odd": column})
    if message is None:
        frame["odd"] = frame["odd"].astype(str)
    file = saved(tmp_path, frame, "mine.parquet")
    if message is None:
        assert table.load(None, path=file, target="y").shape == (30, 3)
        return
    with pytest.raises(ValueError, match=message):
        table.load(None, path=file, target="y")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"inputs": np.zeros((4, 2)), "labels": np.arange(4)}, "has no array targets"),
        ({"inputs": np.zeros(4), "targets": np.arange(4)}, r"of the shape \(N, \.\.\.\)"),
        ({"inputs": np.full((4, 2), np.nan), "targets": np.arange(4)}, r"inputs\[0, 0\] is nan"),
        ({"inputs": np.zeros((4, 2)), "targets": np.full(4, np.inf)}, r"targets\[0\] is inf"),
        ({"inputs": np.array([[1, 2e9 + i] for i in range(4)]), "targets": ONES}, "in column 1"),
        ({"inputs": 2e9 + np.arange(12).reshape(4, 1, 3), "targets": ONES}, "hardly tell apart"),
        (
            {"inputs": np.zeros((4, 2)), "targets": np.arange(4), "groups": np.zeros(3)},
            r"groups must be \(4,\) integers",
        ),
    ],
)
def test_arrays_that_cannot_be_used_are_told(tmp_path, arrays, message):
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        list(npz.load(None, path=tmp_path / "mine.npz", task="regression").chunks)


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
    known = registry.metadata(Choice("mine", "npz", {"path": str(tmp_path / "mine")}))
    assert (known.train, known.test, known.times) == (50, 5, 50)
    arrays["inputs"][33, 1, 2] = np.inf
    np.save(tmp_path / "mine" / "inputs.npy", arrays["inputs"])
    with pytest.raises(ValueError, match=r"inputs\[33, 1, 2\] is inf"):
        opened(tmp_path / "two", npz.load(None, path=tmp_path / "mine"))
    (tmp_path / "mine" / "labels.npy").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"numpy\.save"):
        npz.load(None, path=tmp_path / "mine")


def signals(tmp_path, count=60, task="classification"):
    """Noisy waves; the class is their frequency, the number their height."""
    random = np.random.default_rng(0)
    frequency, height = np.arange(count) % 3, random.uniform(0.5, 2, count)
    time = np.linspace(0, 2 * np.pi, 32)
    waves = height[:, None] * np.sin(
        (1 + 2 * frequency[:, None]) * time + random.random((count, 1))
    )
    inputs = (waves + 0.1 * random.standard_normal(waves.shape))[:, None]
    file = tmp_path / "waves.npz"
    np.savez(file, inputs=inputs, labels=frequency, targets=height, groups=np.arange(count) // 4)
    return Choice("waves", "npz", {"path": str(file), "task": task})


def test_a_network_learns_from_signals(laboratory, tmp_path):
    run = vary(
        dataset=signals(tmp_path),
        model=Choice("convnet", "convnet", {"hidden": [8, 16]}),
        optimizer=Choice("Adam", "Adam", {"lr": 0.02}),
        **PLAIN,
        **{"folds": 3, "fold": 0, "epochs": 15},
    )
    record, _ = laboratory.conduct(run)
    assert record["accuracy"] > 0.8
    assert record["shape"] == [1, 32]


def test_predictions_of_numbers_are_in_their_own_unit(laboratory, tmp_path):
    run = vary(
        dataset=signals(tmp_path, task="regression"),
        loss=MSE,
        optimizer=Choice("Adam", "Adam", {"lr": 0.01}),
        **PLAIN,
        **{"folds": 3, "fold": 0, "epochs": 30},
    )
    record, _ = laboratory.conduct(run)
    predictions = pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")
    from sklearn import metrics

    assert list(predictions) == ["sample", "true", "predicted"]
    assert record["r2"] == pytest.approx(
        metrics.r2_score(predictions["true"], predictions["predicted"])
    )
    assert record["mae"] == pytest.approx(
        metrics.mean_absolute_error(predictions["true"], predictions["predicted"])
    )
    assert record["rmse"] == pytest.approx(
        metrics.root_mean_squared_error(predictions["true"], predictions["predicted"])
    )
    assert record["r2"] > 0.5
    predictor = Predictor(laboratory.folder / "run")
    inputs = np.load(tmp_path / "waves.npz")["inputs"].astype(np.float32)
    again = predictor.predictions(inputs[predictions["sample"]])[:, 0]
    assert np.array_equal(again, predictions["predicted"])
    np.save(tmp_path / "huge.npy", np.full((1, 1, 32), 1e300))
    with pytest.raises(ValueError, match=r"at \[0, 0, 0\] there is no finite number"):
        samples.read(tmp_path / "huge.npy", predictor)


def test_a_table_is_predicted_by_the_names_of_its_columns(laboratory, tmp_path):
    frame = pd.concat([PEOPLE] * 6).reset_index(drop=True)
    options = {"path": saved(tmp_path, frame), "target": "ill", "drop": ["number"]}
    laboratory.conduct(
        vary(dataset=Choice("people", "table", options), **PLAIN, **{"folds": 2, "fold": 0})
    )
    predictor = Predictor(laboratory.folder / "run")
    new = PEOPLE.drop(columns="number")[["ill", "smokes", "town", "age"]]
    given = samples.read(saved(tmp_path, new, "new.csv"), predictor)
    assert list(given.true) == [0, 0, 1, 0, 1, 1]
    as_trained = samples.read(saved(tmp_path, PEOPLE, "all.parquet"), predictor)
    assert np.array_equal(given.inputs, as_trained.inputs)
    assert samples.read(saved(tmp_path, new.drop(columns="ill"), "x.csv"), predictor).true is None
    with pytest.raises(ValueError, match="has no column age"):
        samples.read(saved(tmp_path, new.drop(columns="age"), "less.csv"), predictor)
    flags = new.assign(smokes=new["smokes"].astype(int))
    same = samples.read(saved(tmp_path, flags, "flags.csv"), predictor)
    assert np.array_equal(same.inputs, given.inputs)
    # Of one row or of many: a category that no training sample has is refused, or counts as none.
    rome = new.assign(town=new["town"].mask(new.index == 1, "Rom"))
    for rows, count in ((rome, "1 of 6"), (rome[1:2], "1 of 1")):
        file = saved(tmp_path, rows, "rome.csv")
        expected = rf"the column town holds 'Rom', in {count} rows; known: 'Bonn', 'Kiel', 'Ulm'"
        with pytest.raises(ValueError, match=expected):
            samples.read(file, predictor)
        rome_samples = samples.read(file, predictor, unknown_as_none=True)
        towns = [column["name"] == "town" for column in predictor.columns]
        assert not rome_samples.inputs[list(rows.index).index(1), towns].any()
    with pytest.raises(ValueError, match="age in 1, first in row 2"):
        gap = new.assign(age=new["age"].where(new.index != 2))
        samples.read(saved(tmp_path, gap, "gap.csv"), predictor)
    with pytest.raises(ValueError, match="has no rows"):
        samples.read(saved(tmp_path, new[:0], "none.csv"), predictor)
    # What is not needed refuses nothing.
    other = samples.read(saved(tmp_path, new.assign(ill="perhaps"), "other.csv"), predictor)
    assert other.true is None
    (note,) = other.notes
    assert "the column ill holds 'perhaps' in 6 rows, which the run does not know" in note


@pytest.mark.parametrize(
    ("trained_on", "written", "expected"),
    [
        (["01", "A1", "A1"], ["01", "01", "01"], [0, 0, 0]),
        (["1", "01", "A1"], ["01", "1", "01"], [0, 1, 0]),
        (["0", "5", "0"], ["5.0", "0.0", "5"], [1, 0, 1]),
        (["0.0", "0.5", "0.5"], ["0", "0.50", "0"], [0, 1, 0]),
        (["True", "False", "True"], ["1", "0", "True"], [1, 0, 1]),
        (["01", "02", "01"], ["02", "1", "01"], [1, 0, 0]),
        (["a", "b", "b"], ["b", "B", "a"], None),
        ([" ill", "ill", "ill "], ["ill", "ill ", " ill"], [1, 2, 0]),
        (["ill", "healthy", "ill"], ["ill ", "healthy", "ill"], None),
        (["1", "2", "2"], ["1", "", "2"], None),
    ],
)
def test_a_class_is_read_as_it_was_trained_on(tmp_path, trained_on, written, expected):
    """Scored against another class, right answers would be wrong ones."""

    def file(name, labels):
        rows = [f"{number},{label}" for number, label in enumerate(labels)]
        (tmp_path / name).write_text("\n".join(["x,y", *rows, ""]))
        return str(tmp_path / name)

    options = {"path": file("old.csv", trained_on), "target": "y"}
    made = table.load(None, **options)
    run = SimpleNamespace(dataset=Choice("it", "table", options))
    predictor = SimpleNamespace(run=run, classes=made.classes, columns=made.columns, shape=(1,))
    new_samples = samples.read(file("new.csv", written), predictor)
    assert (new_samples.true if expected is None else list(new_samples.true)) == expected
    assert bool(new_samples.notes) == (expected is None)


def test_rare_classes_can_count_as_much_as_others():
    labels = np.array([0] * 6 + [1] * 2)
    loss = losses.build("CrossEntropyLoss", {"weight": "balanced"}, 2, labels)
    scores = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    targets = torch.from_numpy(labels)
    plain = torch.nn.functional.cross_entropy(scores, targets, reduction="none")
    expected = (plain[:6].mean() + plain[6:].mean()) / 2
    torch.testing.assert_close(loss(scores, targets), expected)


def test_balanced_workers_follow_serial(laboratory):
    balanced = Choice("CrossEntropyLoss", "CrossEntropyLoss", {"weight": "balanced"})
    run = vary(RUN, loss=balanced)
    _, expected = laboratory.conduct(run, "serial")
    _, weights = laboratory.conduct(using(DDP, 2, run), "ddp")
    for key, value in expected.items():
        torch.testing.assert_close(weights[key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (1, 32), (3, 8, 9), (1, 8, 8)])
def test_files_of_images_are_for_what_was_trained_on_such(tmp_path, shape):
    (tmp_path / "one.png").touch()
    with pytest.raises(ValueError, match="not on files of images"):
        samples.read(tmp_path, SimpleNamespace(shape=shape, classes=None))


ARRAYS = {"inputs": np.arange(12.0).reshape(6, 2), "labels": np.array([0, 1] * 3)}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"group": np.arange(6)}, "has an array group; expected it to be called groups"),
        ({"test_input": ARRAYS["inputs"]}, "an array test_input; expected .* called test_inputs"),
        ({"images": np.zeros((6, 2, 2), "uint8")}, "has inputs and images; expected one of them"),
    ],
)
def test_arrays_that_may_be_meant_for_others_are_refused(tmp_path, more, line):
    np.savez(tmp_path / "mine.npz", **ARRAYS, **more)
    with pytest.raises(ValueError, match=line):
        npz.metadata(tmp_path / "mine.npz")


def test_arrays_that_are_not_used_are_named(tmp_path):
    np.savez(tmp_path / "mine.npz", **ARRAYS, patient=np.arange(6))
    assert list(npz.metadata(tmp_path / "mine.npz").notes) == ["not used: the arrays patient"]
