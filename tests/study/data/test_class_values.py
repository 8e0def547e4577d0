"""Classes come back as the data have them; categoricals count as categories."""

import json

import numpy as np
import pandas as pd
import pytest

from allcores_study.data import class_values
from allcores_study.data.facts import Facts
from allcores_study.datasets import npz, table
from allcores_study.interactive import data_files


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
    ],
)
def test_arrays_that_cannot_be_meant_are_told(tmp_path, data, told):
    with pytest.raises(ValueError, match=told):
        data_files.entry(tmp_path / "mine.yaml", data, None, None, 2, {})


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


def test_missing_values_are_missing_however_a_frame_writes_them(tmp_path):
    frame = pd.DataFrame({"a": ["-99", "b"] * 3, "b": [-99, 1.5] * 3, "y": [0, 1] * 3})
    for codes in ([-99], ["-99"]):
        entry, _ = data_files.entry(
            tmp_path / "mine.yaml", frame, "y", None, 2, {"missing_values": codes}
        )
        path = str(tmp_path / entry["path"])
        samples = table.load(None, path=path, target="y", missing="mean", missing_values=codes)
        assert [column["category"] for column in samples.columns] == ["b", None]
        assert np.isnan(samples.chunks[0][::2, 1]).all()


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
