"""What holds for anything: drawn by hypothesis, the same in each call (see conftest.py)."""

import io
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import metrics as of_sklearn
from sklearn.model_selection import StratifiedKFold

from allcores.analysis import measures
from allcores.data import folds
from allcores.data.batches import count_batches, shards
from allcores.data.folds import Assignable
from allcores.datasets import table
from allcores.study import sweeps


@given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.integers(1, 30), st.integers(0, 9))
def test_candidates_are_drawn_from_grids_of_any_size(sizes, count, seed):
    """Also of 10^22 of them, which no machine has room for."""
    total = math.prod(sizes)
    count = min(count, total)
    axes = [sweeps.Swept((f"key{n}",), list(range(size))) for n, size in enumerate(sizes)]
    drawn = sweeps._draw(axes, {"count": count, "seed": seed})
    assert len(set(drawn)) == count
    assert drawn == sorted(drawn), "in the order of the grid"
    assert drawn == sweeps._draw(axes, {"count": count, "seed": seed})
    if total <= 100:
        every = list(itertools.product(*(range(size) for size in sizes)))
        assert sweeps._draw(axes, None) == every
        assert set(drawn) <= set(every)


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
    for fold, inner_of in enumerate(folds.assign_inner_folds(assignable, count, 2, seed)):
        assert ((inner_of == folds.NOWHERE) == (fold_of == fold)).all()
        assert (inner_of[fold_of != fold] == assignable.part(fold_of != fold).folds(2, seed)).all()


@given(st.integers(1, 80), st.integers(1, 40), st.integers(1, 6), st.integers(0, 3))
def test_workers_share_what_one_would_see(count, batch_size, workers, seed):
    indices = np.arange(7, 7 + count)
    alone = [set(batch.samples) for batch in shards(indices, batch_size, seed, 1, 0, 1)]
    assert sorted(itertools.chain(*alone)) == list(indices)
    assert len(alone) == count_batches(count, batch_size)
    shared = [list(shards(indices, batch_size, seed, 1, rank, workers)) for rank in range(workers)]
    for batch, parts in zip(alone, zip(*shared, strict=True), strict=True):
        seen = [sample for part in parts if part.weight for sample in part.samples]
        assert sorted(seen) == sorted(batch)
        for part in parts:
            assert part.batch == len(batch)
            assert part.weight in (0, workers * len(part.samples) / len(batch))
        assert math.isclose(sum(part.weight for part in parts), workers)


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
        recalled = of_sklearn.recall_score(true, predicted, average=None, zero_division=0.0)
        assert scores["sensitivity"] == pytest.approx(np.mean(recalled[1 if classes == 2 else 0 :]))
        if classes == 2:
            assert scores["specificity"] == pytest.approx(recalled[0])
            assert scores["f1"] == pytest.approx(of_sklearn.f1_score(true, predicted))
        else:
            assert scores["f1"] == pytest.approx(scores["macro_f1"])
            others = [(predicted[true != k] != k).mean() for k in range(classes)]
            assert scores["specificity"] == pytest.approx(np.mean(others))
        areas = of_sklearn.average_precision_score(certain, probabilities, average=None)
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
        brier = of_sklearn.brier_score_loss(true, probabilities[:, 1])
        assert scores["brier"] == pytest.approx(brier)


NUMBERS = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
TEXTS = st.text("abXé,\"'", min_size=1, max_size=5)


@given(
    st.lists(st.tuples(NUMBERS, TEXTS, st.booleans()), min_size=2, max_size=12),
    st.randoms(use_true_random=False),
)
def test_a_table_is_encoded_alike_whatever_the_order_of_rows_and_columns(rows, random):
    frame = pd.DataFrame(rows, columns=["number", "text", "truth"])
    columns = table.columns_of("it", frame)
    encoded = table.encoded("it", frame, columns)
    assert (encoded[:, 0] == frame["number"].to_numpy(np.float32)).all()
    for position, column in enumerate(columns[1:], 1):
        values = frame[column["name"]].astype(str)
        assert (encoded[:, position] == (values == column["category"])).all()
    order = random.sample(range(len(frame)), len(frame))
    shuffled = frame.iloc[order][["truth", "number", "text"]]
    assert np.array_equal(table.encoded("it", shuffled, columns), encoded[order])
    written = pd.read_csv(io.StringIO(frame.to_csv(index=False)), keep_default_na=False)
    assert np.array_equal(table.encoded("it", written, columns), encoded)
