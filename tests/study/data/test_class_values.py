"""Classes come back as the data have them; categoricals count as categories."""

import json
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy.sparse import csr_matrix

from allcores_study.data import class_values
from allcores_study.data.facts import Facts
from allcores_study.datasets import _table_files, npz, table
from allcores_study.interactive import data_files

DICTIONARY = pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))


@pytest.mark.parametrize(
    "target",
    [
        pd.Series([0.0, 1.0] * 6),
        pd.Series([False, True] * 6),
        pd.Series([1, 2] * 6, dtype="Int64"),
        pd.Series(["0", "1"] * 6),
        pd.Series([10**19, 10**19 + 1] * 6, dtype="uint64"),
        pd.Series(pd.Categorical(["b", "a"] * 6, ["c", "b", "a"], ordered=True)),
        pd.Series(pd.Categorical([30, 4] * 6)),
        pd.Series(pd.Categorical([2, 10] * 6, [10, 7, 2], ordered=True)),
        pd.Series(pd.Categorical([False, True] * 6, [True, False])),
        pd.Series(pd.to_datetime(["2026-01-31", "2026-01-01"] * 6)),
        pd.cut(pd.Series([1.5, 0.5] * 6), [0.1, 1, 2]),
    ],
    ids=lambda target: str(target.dtype),
)
def test_classes_keep_their_dtype(tmp_path, target):
    frame = pd.DataFrame({"x": np.arange(12.0), "y": target})
    entry, _ = data_files.entry(tmp_path / "mine.yaml", frame, "y", None, 2, {})
    samples = table.load(None, path=str(tmp_path / entry["path"]), target="y")
    facts = json.loads(json.dumps(Facts.of(samples).class_values))
    classes = class_values.restored(facts)
    found = pd.Series(classes.take(samples.targets))
    pd.testing.assert_series_equal(found, target, check_names=False)
    # In their own order, not in that of their texts.
    assert list(classes) == list(target.sort_values().unique())


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["no", "yes", "no"], ["no", "yes", "no"]),
        ([True, False, True], [True, False, True]),
        ([2.0, 5.0, 2.0], [2.0, 5.0, 2.0]),
        ([[3], [1], [3]], [3, 1, 3]),
        ([1, 0, 1], [1, 0, 1]),
        (np.array([7, 3, 7], dtype=object), [7, 3, 7]),
        (np.array([1, 0, 1], np.float16), [1.0, 0.0, 1.0]),
    ],
)
def test_answers_beside_arrays_are_classes_of_any_kind(tmp_path, answers, expected):
    inputs = np.arange(6.0).reshape(3, 2)
    data = inputs, np.array(answers)
    entry, _ = data_files.entry(tmp_path / "mine.yaml", data, None, None, 2, {})
    samples = npz.load(None, path=str(tmp_path / entry["path"]))
    classes = class_values.restored(Facts.of(samples).class_values)
    assert classes.take(samples.targets).tolist() == expected


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ((np.zeros((3, 2)), np.array([0.5, 1, 2])), "answers are fractions, or missing"),
        ((np.ma.masked_less([[1.0, -9.0]] * 3, 0), [0, 1, 1]), "inputs have 3 masked values"),
        ((np.zeros((3, 2)), np.array(["a", 1, None], dtype=object)), "answers are no classes"),
        ((pd.DataFrame({"a": range(3)}), [0, 1]), "found 3 inputs and 2 answers"),
        ((pd.DataFrame({"a": range(3)}), 1), "answers are 1; expected an array"),
        (([[1], [2, 3]], [0, 1]), "inputs are not an array"),
        ((csr_matrix(np.eye(3)), [0, 1, 1]), r"inputs are a csr_matrix; give inputs.toarray\(\)"),
        ((torch.zeros(3, 2, dtype=torch.bfloat16), [0, 1, 1]), "inputs are not an array"),
        (("ab", "cd"), "inputs are 'ab'; expected an array"),
    ],
)
def test_arrays_that_cannot_be_meant_are_told(tmp_path, data, told):
    with pytest.raises(ValueError, match=told):
        data_files.entry(tmp_path / "mine.yaml", data, None, None, 2, {})


def test_a_categorical_beside_numbers_stays_one(tmp_path):
    answers = pd.Series(pd.Categorical(["p", "n", "p"], ["p", "n"]))
    data = np.zeros((3, 2), np.float32), answers
    entry, _ = data_files.entry(tmp_path / "mine.yaml", data, None, None, 2, {})
    samples = table.load(None, path=str(tmp_path / entry["path"]), target=entry["target"])
    classes = class_values.restored(Facts.of(samples).class_values)
    assert list(classes) == ["p", "n"] and classes.dtype == answers.dtype


def test_categories_with_gaps_are_what_a_new_frame_has(tmp_path):
    frame = pd.DataFrame({"d": pd.Categorical([3, None, 4] * 4), "y": [0, 1] * 6})
    entry, _ = data_files.entry(tmp_path / "mine.yaml", frame, "y", None, 2, {})
    samples = table.load(None, path=str(tmp_path / entry["path"]), target="y", missing="mean")
    assert [column["category"] for column in samples.columns] == ["3", "4"]
    assert samples.notes == []
    new = _table_files.with_texts(_table_files.of_frame(frame))
    assert (table.encoded("new", new, samples.columns) == next(iter(samples.chunks))).all()


@pytest.mark.parametrize("dtype", ["double[pyarrow]", "int64[pyarrow]", "Int64", "Float64"])
def test_numbers_of_any_dtype_are_numbers(tmp_path, dtype):
    column = pd.Series([-9, 1, 2, 3] * 5).astype(dtype)
    frame = pd.DataFrame({"x": column, "y": [0, 1] * 10})
    frame.to_parquet(tmp_path / "mine.parquet")
    reading = {"missing": "mean", "missing_values": [-9]}
    samples = table.load(None, path=str(tmp_path / "mine.parquet"), target="y", **reading)
    assert np.isnan(next(iter(samples.chunks))[:, 0]).sum() == 5


def test_codes_of_missing_numbers_are_no_truth_values(tmp_path):
    frame = pd.DataFrame({"d": [True, False, False] * 4, "x": [0, 1, 2] * 4, "y": [0, 1] * 6})
    frame.to_parquet(tmp_path / "mine.parquet")
    frame.to_csv(tmp_path / "mine.csv", index=False)
    for kind in ("parquet", "csv"):
        path = str(tmp_path / f"mine.{kind}")
        samples = table.load(
            None, path=path, target="d", drop=["y"], missing_values=[0, 1], missing="mean"
        )
        assert samples.names == ["False", "True"]
        assert np.isnan(next(iter(samples.chunks))[:, 0]).sum() == 8


@pytest.mark.parametrize("values", [[date(2026, 1, 1), date(2026, 1, 2)], [b"a", b"b"]])
def test_classes_of_other_kinds_are_refused(tmp_path, values):
    pd.DataFrame({"x": range(6), "y": values * 3}).to_parquet(tmp_path / "mine.parquet")
    with pytest.raises(ValueError, match=r"the column y holds a (date|bytes); expected texts"):
        table.load(None, path=str(tmp_path / "mine.parquet"), target="y")


@pytest.mark.parametrize("ordered", [False, True])
def test_a_categorical_of_numbers_counts_as_categories(tmp_path, ordered):
    zone = pd.Categorical([10, 20, 30, 40] * 3, ordered=ordered)
    frame = pd.DataFrame({"zone": zone, "y": [0, 1] * 6})
    frame.to_parquet(tmp_path / "mine.parquet")
    samples = table.load(None, path=str(tmp_path / "mine.parquet"), target="y")
    assert [column["category"] for column in samples.columns] == ["10", "20", "30", "40"]
    plain = pd.DataFrame({"zone": [20, 40.0, None]})  # as floats, beside a gap
    found = table.encoded("new", plain, samples.columns)
    assert found.tolist() == [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    halves = [{"name": "zone", "category": text} for text in ("1.0", "2.5")]
    plain = pd.DataFrame({"zone": [1.0, 2.5]})
    assert table.encoded("new", plain, halves).tolist() == [[1, 0], [0, 1]]


def test_a_dictionary_of_arrow_counts_as_categories(tmp_path):
    town = pd.Series(["Ulm", "Bonn"] * 6).astype("category")
    arrow = pd.array(pa.array(town).dictionary_encode(), dtype=DICTIONARY)
    frame = pd.DataFrame({"town": arrow, "y": [0, 1] * 6})
    entry, _ = data_files.entry(tmp_path / "mine.yaml", frame, "y", None, 2, {})
    samples = table.load(None, path=str(tmp_path / entry["path"]), target="y")
    assert [column["category"] for column in samples.columns] == ["Bonn", "Ulm"]


def test_intervals_are_categories_and_sparse_columns_are_numbers(tmp_path):
    age, marks = np.array([21, 45, 70, 33] * 3), [0.0, 0.0, 2.0] * 4
    sparse = pd.arrays.SparseArray(marks, fill_value=0.0)
    frame = pd.DataFrame({"age": pd.cut(age, [0, 40, 99]), "marks": sparse, "y": [0, 1] * 6})
    entry, _ = data_files.entry(tmp_path / "mine.yaml", frame, "y", None, 2, {})
    samples = table.load(None, path=str(tmp_path / entry["path"]), target="y")
    assert [column["category"] for column in samples.columns] == ["(0, 40]", "(40, 99]", None]
    (inputs,) = samples.chunks
    assert inputs.T.tolist() == [(age <= 40).tolist(), (age > 40).tolist(), marks]
    new = _table_files.with_texts(_table_files.of_frame(frame))
    assert (table.encoded("new", new, samples.columns) == inputs).all()


def test_missing_values_are_missing_however_a_frame_writes_them(tmp_path):
    frame = pd.DataFrame({"a": ["-99", "b"] * 3, "b": [-99, 1.5] * 3, "y": [0, 1] * 3})
    for codes in ([-99], ["-99"]):
        entry, _ = data_files.entry(
            tmp_path / "mine.yaml", frame, "y", None, 2, {"missing_values": codes}
        )
        path = str(tmp_path / entry["path"])
        samples = table.load(None, path=path, target="y", missing="mean", missing_values=codes)
        assert [column["category"] for column in samples.columns] == ["b", None]
        assert np.isnan(next(iter(samples.chunks))[::2, 1]).all()


def test_copies_are_noted_unless_groups_keep_them_together(tmp_path):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3))).rename(columns=str)
    rows = rows.assign(y=[0, 1] * 10, who=np.arange(20))
    pd.concat([rows] * 3).to_parquet(tmp_path / "mine.parquet")
    told = {"path": str(tmp_path / "mine.parquet"), "target": "y"}
    (note,) = table.load(None, **told, drop=["who"]).notes
    assert note.startswith("40 of 60 rows are copies of others") and "`groups`" in note
    assert table.load(None, **told, groups="who").notes == []


def test_an_id_with_a_gap_is_noted(tmp_path):
    frame = pd.DataFrame({"id": [None, *range(101, 130)], "x": np.arange(30) / 7, "y": [0, 1] * 15})
    frame.to_parquet(tmp_path / "mine.parquet")
    (note,) = table.load(
        None, path=str(tmp_path / "mine.parquet"), target="y", missing="mean"
    ).notes
    assert note.startswith("the column id counts the rows")
