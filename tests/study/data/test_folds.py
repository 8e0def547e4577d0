"""Folds of classes, groups and times, and which of their samples a worker sees."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT, vary
from hypothesis import assume, example, given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedKFold, TimeSeriesSplit
from test_any_data import MSE, PLAIN, saved

from allcores.loop.sharding import count_batches, shards, shuffled
from allcores_study.config import fit, registry
from allcores_study.config.run import Entry
from allcores_study.data import storage
from allcores_study.data.facts import Facts
from allcores_study.data.folds import (
    FIRST,
    NOWHERE,
    Assignable,
    assign_inner_folds,
    hold_back,
    split,
)
from allcores_study.datasets import table


@given(st.lists(st.integers(0, 3), min_size=12, max_size=60), st.integers(2, 4), st.integers(0, 5))
def test_folds_are_parts_with_their_share_of_each_class_and_are_cut_in_turn(labels, count, seed):
    targets = np.array(labels)
    assume(np.bincount(targets)[np.unique(targets)].min() >= 2 * count)
    assignable = Assignable(targets)
    fold_of = assignable.folds(count, seed)
    assert set(fold_of) == set(range(count))
    for one in np.unique(targets):
        sizes = np.bincount(fold_of[targets == one], minlength=count)
        assert np.ptp(sizes) <= 1
    expected = StratifiedKFold(count, shuffle=True, random_state=seed).split(targets, targets)
    for fold, (_, held_out) in enumerate(expected):
        assert set(np.flatnonzero(fold_of == fold)) == set(held_out)
    for fold, inner_of in enumerate(assign_inner_folds(assignable, count, 2, seed)):
        assert ((inner_of == NOWHERE) == (fold_of == fold)).all()
        assert (inner_of[fold_of != fold] == assignable.part(fold_of != fold).folds(2, seed)).all()
    (of_all,) = assign_inner_folds(assignable, 0, 2, seed)  # a test set is held out
    assert (of_all == assignable.folds(2, seed)).all()


@given(st.integers(1, 80), st.integers(1, 40), st.integers(1, 6), st.integers(0, 3))
def test_workers_share_what_one_would_see(count, batch_size, workers, seed):
    indices = np.arange(7, 7 + count)
    order = shuffled(indices, seed, 1)
    alone = [set(batch.samples) for batch in shards(order, batch_size, 0, 1)]
    assert sorted(itertools.chain(*alone)) == list(indices)
    assert len(alone) == count_batches(count, batch_size)
    shared = [list(shards(order, batch_size, rank, workers)) for rank in range(workers)]
    for batch, parts in zip(alone, zip(*shared, strict=True), strict=True):
        seen = [sample for part in parts if part.weight for sample in part.samples]
        assert sorted(seen) == sorted(batch)
        for part in parts:
            assert part.batch == len(batch)
            assert part.weight in (0, workers * len(part.samples) / len(batch))
        assert math.isclose(sum(part.weight for part in parts), workers)


@pytest.mark.parametrize("targets", [np.arange(40) % 2, np.arange(40) / 7])
def test_no_group_is_on_both_sides(targets):
    groups = np.arange(40) // 4
    fold_of = Assignable(targets, groups).folds(5, seed=0)
    facts = Facts(40, 0, (3,))
    for fold in range(5):
        train, held_out = split(facts, fold_of, fold, None, 0)
        assert not set(groups[train]) & set(groups[held_out])
        assert len(held_out)
    for inner_of in assign_inner_folds(Assignable(targets, groups), 5, 2, seed=0):
        assert all(len(set(inner_of[groups == group])) == 1 for group in range(10))
    with pytest.raises(ValueError, match="groups"):
        Assignable(np.arange(40) % 2, np.zeros(40, int)).folds(2, seed=0)


def test_what_is_held_out_comes_later_than_what_is_trained_on():
    times = np.random.default_rng(0).permutation(np.arange(43) // 2)
    assignable = Assignable(np.zeros(43, int), times=times)
    fold_of = assignable.folds(5, seed=0)
    facts = Facts(43, 0, (3,))
    for fold in range(5):
        train, held_out = split(facts, fold_of, fold, None, 0, ordered=True)
        assert times[train].max() < times[held_out].min()
        assert len(held_out) == pytest.approx(43 / 6, abs=2)
        rest, judged = hold_back(assignable, train, 0.2, seed=0)
        assert times[rest].max() < times[judged].min()
        assert set(rest) | set(judged) == set(train)
        assert len(judged) == pytest.approx(len(train) / 5, abs=2)
    train, held_out = split(facts, fold_of, 4, None, 0, ordered=True)
    assert sorted([*train, *held_out]) == list(range(43))
    inner_of = assign_inner_folds(assignable, 5, 2, seed=0)
    for fold in (1, 4):
        outer, _ = split(facts, fold_of, fold, None, 0, ordered=True)
        inner, scored = split(facts, inner_of[fold], 1, None, 0, ordered=True)
        assert sorted([*inner, *scored]) == list(outer)
        assert times[inner].max() < times[scored].min()
    with pytest.raises(ValueError, match="2 folds in order of time need more than 2 different"):
        Assignable(np.zeros(6, int), times=np.array([0, 0, 0, 1, 1, 1])).folds(2, seed=0)


@given(st.lists(st.integers(1, 10), min_size=3, max_size=9), st.integers(2, 4))
@example([10, 1, 1, 1], 3)
@example([1, 1, 1, 10], 3)
@example([1, 9, 1, 9, 1], 3)
def test_no_fold_is_empty_as_long_as_there_are_more_times(sizes, count):
    assume(len(sizes) > count)
    times = np.repeat(np.arange(len(sizes)), sizes)
    fold_of = Assignable(np.zeros(len(times), int), times=times).folds(count, seed=0)
    assert list(np.unique(fold_of)) == [FIRST, *range(count)]
    assert (np.diff(fold_of) >= 0).all()
    assert all(len(set(fold_of[times == moment])) == 1 for moment in range(len(sizes)))


def test_a_table_of_dates_is_split_by_them(laboratory, tmp_path):
    """As TimeSeriesSplit does it, where every row has a time of its own."""
    count = 38
    days = pd.date_range("2026-01-01", periods=count).strftime("%Y-%m-%d").to_numpy()
    order = np.random.default_rng(1).permutation(count)
    x = np.random.default_rng(2).standard_normal(count)
    frame = pd.DataFrame({"x": x, "y": 2 * x, "day": days}).iloc[order]
    options = {"path": saved(tmp_path, frame), "target": "y", "task": "regression", "time": "day"}
    entry = Entry("days", "table", options)
    assert registry.facts(entry).times == count
    dataset = storage.open_dataset(laboratory.data(entry))
    assert list(dataset.times) == list(order)
    for fold, (train, held_out) in enumerate(TimeSeriesSplit(5).split(np.zeros(count))):
        fold_of = Assignable.of(dataset).folds(5, seed=0)
        mine = split(dataset.facts, fold_of, fold, None, 0, ordered=True)
        assert [set(dataset.times[part]) for part in mine] == [set(train), set(held_out)]
    run = vary(dataset=entry, loss=MSE, **PLAIN, **{"folds": 5, "fold": 2, "validation": 0.25})
    record, _ = laboratory.trained(run)
    assert (record["train_samples"], record["validation_samples"]) == (15, 5)
    assert record["held_out_samples"] == 6


@pytest.mark.parametrize("groups", [3, 7])
def test_as_many_folds_as_groups_hold_out_each_group(groups):
    random = np.random.default_rng(0)
    of_group = random.permutation(np.arange(70) % groups)
    targets = random.integers(0, 2, 70)
    for seed in range(5):
        fold_of = Assignable(targets, of_group).folds(groups, seed)
        pairs = {(group, fold) for group, fold in zip(of_group, fold_of, strict=True)}
        assert len(pairs) == len(set(fold_of)) == groups


def test_leave_one_hospital_out_of_a_strangers_table():
    file = ROOT / "tests" / "inputs" / "logo.csv"
    made = table.load(None, path=str(file), target="y", groups="hospital")
    assert len(set(Assignable(made.targets, made.groups).folds(7, 0))) == 7


def problems(tmp_path, study, **options):
    config = {"datasets": {"it": {"name": "table", "target": "y"} | options}}
    config["models"] = {"net": {"name": "mlp", "validation": 0.5}}
    study = {"datasets": ["it"], "models": [], "train_sizes": ["all"], "seeds": [0]} | study
    study |= {"strategies": ["serial"]}
    config["studies"] = {"first": study}
    return [text for _, text in fit.problems(config, ("studies", "first"), study)]


def test_all_that_is_wrong_with_a_table_is_told_at_once(tmp_path):
    rows = "".join(f"{n / 8 if n else ''},{'rare' if n < 2 else 'often'}\n" for n in range(30))
    (tmp_path / "mine.csv").write_text(f"x,y\n{rows}")
    said = problems(tmp_path, {"folds": 5, "select": 3}, path=str(tmp_path / "mine.csv"))
    assert "x in 1, first in row 0" in said[0]
    options = {"path": str(tmp_path / "mine.csv"), "missing": "mean"}
    said = problems(tmp_path, {"folds": 5, "select": 3}, **options)
    assert any("the smallest class of 'it', rare, has 2 samples" in text for text in said)
    assert any("leaves 1 sample of the smallest class to train on" in text for text in said)


@pytest.mark.parametrize(
    ("columns", "study", "told"),
    [
        (
            {"groups": "g"},
            {"folds": 3, "select": 3},
            "leaves 2 groups to train on; expected at most 2",
        ),
        ({"groups": "g"}, {"folds": 3, "select": 2}, None),
        ({"groups": "g"}, {"folds": 2, "models": ["net"]}, "leaves 1 group to train on; holding"),
        ({"groups": "g"}, {"folds": 3, "models": ["net"]}, None),
        (
            {"time": "t"},
            {"folds": 5, "select": 2},
            "leaves 2 different times to train on; expected at most 1",
        ),
        ({"time": "t"}, {"folds": 3, "select": 2}, None),
        (
            {"time": "t"},
            {"folds": 11, "models": ["net"]},
            "leaves 1 different time to train on; hold",
        ),
        (
            {},
            {"folds": 2, "models": ["net"]},
            "leaves 1 sample of the smallest class to train on; hold",
        ),
    ],
)
def test_folds_that_leave_too_little_to_divide_again_are_told(tmp_path, columns, study, told):
    rows = "".join(f"{n},{n % 3},{n},{'rare' if n < 2 else 'often'}\n" for n in range(12))
    (tmp_path / "mine.csv").write_text(f"x,g,t,y\n{rows}")
    said = problems(tmp_path, study, path=str(tmp_path / "mine.csv"), **columns)
    if told is None:
        assert not any("to train on" in text for text in said), said
    else:
        assert any(told in text for text in said), said


def test_a_forgotten_regression_is_suggested(tmp_path):
    file = str(ROOT / "tests" / "inputs" / "floatcls.csv")
    said = problems(tmp_path, {"folds": 5}, path=file, target="price")
    assert any("has 1 sample," in text and "`task: regression`" in text for text in said)
