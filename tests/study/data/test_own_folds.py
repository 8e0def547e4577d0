"""Folds of one's own: a column, an array, or a splitter of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)

from allcores_study.config import checks
from allcores_study.data import folds, storage
from allcores_study.data.folds import FIRST, Assignable
from allcores_study.datasets import npz, table
from allcores_study.interactive import data_files

OWN = [2.0, 0, 0, 2, np.nan, 1, 1, -1, 2, 0]
EXPECTED = [2, 0, 0, 2, FIRST, 1, 1, FIRST, 2, 0]


def prepared(folder, samples):
    storage.write(folder, samples)
    return storage.open_dataset(folder)


def of_file(tmp_path, kind):
    """A prepared dataset with folds of its own, from a CSV or an npz."""
    if kind == "npz":
        own = np.nan_to_num(OWN, nan=-1).astype(int)
        np.savez(tmp_path / "x.npz", inputs=np.zeros((10, 1)), labels=[0, 1] * 5, folds=own)
        return prepared(tmp_path / "data", npz.load(None, path=str(tmp_path / "x.npz")))
    frame = pd.DataFrame({"x": range(10), "y": [0, 1] * 5, "fold": OWN})
    frame.to_csv(tmp_path / "x.csv", index=False)
    path = str(tmp_path / "x.csv")
    return prepared(tmp_path / "data", table.load(None, path=path, target="y", folds="fold"))


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_they_are_held_out_and_all_others_are_trained_on(tmp_path, kind):
    dataset = of_file(tmp_path, kind)
    assert dataset.facts.own_folds == [3, 2, 3]
    assignable = Assignable.of(dataset)
    fold_of = folds.assign(assignable, 3, None, seed=0)
    assert fold_of.tolist() == EXPECTED
    train, held_out = folds.split(dataset.facts, fold_of, 1, None, seed=0)
    assert held_out.tolist() == [5, 6]
    assert train.tolist() == [0, 1, 2, 3, 4, 7, 8, 9]
    # The inner folds of a choice are drawn from what is trained on.
    inner = folds.assign(assignable, 3, 2, seed=0)
    assert (inner[1] >= 0).tolist() == [fold != 1 for fold in EXPECTED]
    folds.write(tmp_path / "folds.json", assignable, 3, 0, 0)
    assert folds.read(tmp_path / "folds.json", assignable, 3, 0, 0).tolist() == EXPECTED


def test_a_study_has_as_many(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    of_file(tmp_path, "csv")
    model = {"hidden": [2], "batch_size": 4, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.1}}
    study = {"datasets": ["x"], "folds": 5, "models": ["mlp"]}
    entry = {"name": "table", "path": "x.csv", "target": "y", "folds": "fold", "missing": "mean"}
    config = {"datasets": {"x": entry}, "models": {"mlp": model}, "studies": {"s": study}}
    (told,) = checks.findings(config)
    assert told == "studies.s.folds: found 5; 'x' brings 3 folds of its own; expected 3"
    study["folds"] = 3
    assert checks.findings(config) == []


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"folds": np.zeros(6, int)}, "folds must be numbers from 0 without a gap, at least two"),
        ({"folds": np.array([0, 2] * 3)}, "folds must be numbers from 0 without a gap"),
        ({"folds": np.array([0, 1] * 3), "times": np.arange(6)}, "found folds and times"),
    ],
)
def test_folds_that_cannot_be_meant_are_told(tmp_path, own, told):
    np.savez(tmp_path / "x.npz", inputs=np.zeros((6, 1)), labels=[0, 1] * 3, **own)
    with pytest.raises(ValueError, match=told):
        npz.load(None, path=str(tmp_path / "x.npz"))


def test_groups_that_they_cut_apart_are_noted(tmp_path):
    frame = pd.DataFrame({"x": range(6), "y": [0, 1] * 3, "g": [1, 1, 2, 2, 3, 3], "f": [0, 1] * 3})
    frame.to_csv(tmp_path / "x.csv", index=False)
    samples = table.load(None, path=str(tmp_path / "x.csv"), target="y", groups="g", folds="f")
    assert any(
        "cut groups apart, 3 times" in note
        for note in prepared(tmp_path / "d", samples).facts.notes
    )


@pytest.mark.parametrize(
    "splitter",
    [
        KFold(4),
        StratifiedKFold(3, shuffle=True, random_state=1),
        GroupKFold(3),
        PredefinedSplit([0, 1, -1] * 8),
        TimeSeriesSplit(3),
    ],
    ids=lambda splitter: type(splitter).__name__,
)
@pytest.mark.parametrize("is_frame", [False, True])
def test_splitters_give_the_folds_that_scikit_learn_gives(tmp_path, splitter, is_frame):
    inputs, answers, groups = np.arange(48.0).reshape(24, 2), np.arange(24) % 2, np.arange(24) // 4
    groups = None if isinstance(splitter, TimeSeriesSplit) else groups
    data = (pd.DataFrame(inputs), answers) if is_frame else (inputs, answers)
    entry, count = data_files.entry(tmp_path / "x.yaml", data, None, groups, splitter, {})
    path = str(tmp_path / entry.pop("path"))
    load = {"table": table.load, "npz": npz.load}[entry.pop("name")]
    dataset = prepared(tmp_path / "data", load(None, path=path, **entry))
    fold_of = folds.assign(Assignable.of(dataset), count, None, seed=0)
    ordered = dataset.times is not None
    expected = list(splitter.split(inputs, answers, groups))
    assert len(expected) == count
    for fold, (train, held_out) in enumerate(expected):
        found = folds.split(dataset.facts, fold_of, fold, None, 0, ordered)
        assert [part.tolist() for part in found] == [train.tolist(), held_out.tolist()]


@pytest.mark.parametrize(
    ("splitter", "told"),
    [
        (
            RepeatedKFold(n_splits=2, n_repeats=2, random_state=0),
            "holds samples out more than once",
        ),
        (ShuffleSplit(2, test_size=0.2, random_state=0), "more than once|does not train on all"),
        (TimeSeriesSplit(3, gap=2), "TimeSeriesSplit with the default"),
        (KFold(3, shuffle=True), "draws other folds each time; give it a random_state"),
        (GroupKFold(3), "cannot split these data .ValueError: The 'groups' parameter should not"),
        (KFold, "found the class KFold; expected a number"),
        (PredefinedSplit([0] * 24), "gives 1 folds; expected at least two"),
        (None, "found None; expected a number"),
        (2.5, "found 2.5; expected a number"),
        (np.zeros((24, 1)), r"folds: found \(24, 1\); expected a value for each of 24"),
        (np.array([0, 1, 2]), r"folds: found \(3,\); expected a value for each of 24"),
    ],
)
def test_splitters_that_no_study_has_are_told(tmp_path, splitter, told):
    data = np.zeros((24, 2)), np.arange(24) % 2
    with pytest.raises(ValueError, match=told):
        data_files.entry(tmp_path / "x.yaml", data, None, None, splitter, {})


@pytest.mark.parametrize(
    "own",
    [
        [0, 1, None, -1] * 6,
        pd.Series([0, 1, -1] * 8, dtype=object),
        ["b", "c", "", "NA"] * 6,
        np.array([0.0, 1.0, np.nan] * 8),
        torch.tensor([0, 1, -1] * 8),
    ],
    ids=["list", "objects", "texts", "floats", "tensor"],
)
def test_what_names_no_fold_is_held_out_in_none(tmp_path, own):
    data = np.zeros((24, 2)), np.arange(24) % 2
    entry, count = data_files.entry(tmp_path / "x.yaml", data, None, None, own, {})
    fold_of = npz.load(None, path=str(tmp_path / entry["path"])).folds
    assert count == 2 and set(fold_of) == {-1, 0, 1}
    assert (fold_of[0], fold_of[1], fold_of[-1]) == (0, 1, -1)


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ([1, 2, np.nan] * 8, "groups: 8 values are missing"),
        ("b", "groups are 'b'; expected an array"),
        (np.zeros((24, 2)), r"groups: found \(24, 2\); expected \(24,\)"),
    ],
)
def test_groups_that_cannot_be_meant_are_told(tmp_path, groups, told):
    data = np.zeros((24, 2)), np.arange(24) % 2
    with pytest.raises(ValueError, match=told):
        data_files.entry(tmp_path / "x.yaml", data, None, groups, 2, {})


def test_several_targets_are_split_by_groups(tmp_path):
    frame = pd.DataFrame({"x": range(12), "a": range(12), "b": range(12), "g": np.arange(12) // 3})
    entry, count = data_files.entry(
        tmp_path / "x.yaml", frame, ["a", "b"], "g", GroupKFold(2), {"task": "regression"}
    )
    path = str(tmp_path / entry.pop("path"))
    samples = table.load(None, path=path, **{k: v for k, v in entry.items() if k != "name"})
    assert count == 2 and samples.shape == (12, 1) and samples.targets.shape == (12, 2)
    expected = GroupKFold(2).split(frame, groups=frame["g"])
    for fold, (_, held_out) in enumerate(expected):
        assert np.flatnonzero(samples.folds == fold).tolist() == held_out.tolist()


def test_groups_may_be_anything(tmp_path):
    data = np.zeros((24, 2)), np.arange(24) % 2
    groups = np.array(["a", 1, "b"] * 8, dtype=object)
    entry, _ = data_files.entry(tmp_path / "x.yaml", data, None, groups, 2, {})
    samples = npz.load(None, path=str(tmp_path / entry["path"]))
    assert samples.groups.tolist() == [0, 1, 2] * 8
