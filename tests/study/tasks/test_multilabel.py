"""Several labels of each sample are predicted, each of which holds or does not."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import DDP, using, vary
from hypothesis import given
from hypothesis import strategies as st
from project import copy
from sklearn import metrics
from test_several_numbers import by_hand, run_on, standardised
from test_stack import difference, stack

from allcores_study.config.run import Entry
from allcores_study.data import folds, labels
from allcores_study.datasets import npz, table
from allcores_study.serving.model import Model

ROWS = 90
RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(RANDOM.normal(size=(ROWS, 3)), columns=["a", "b", "c"])
FRAME["flu"] = (FRAME["a"] + FRAME["b"] > 0.5).astype(int)
FRAME["cold"] = FRAME["c"] > 1
LABELS = ["flu", "cold"]
TRUE = FRAME[LABELS].to_numpy(np.int64)


@pytest.fixture
def run(tmp_path):
    return run_on(tmp_path / "ill.csv", FRAME, LABELS, "multilabel", "BCEWithLogitsLoss")


def test_scores_are_those_of_scikit_learn_and_probabilities_are_told(run, laboratory):
    record, _ = laboratory.trained(run)
    frame = pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")
    true, predicted = (np.stack(frame[name]) for name in ("true", "predicted"))
    assert np.array_equal(true, TRUE[frame["sample"]])
    for average in ("micro", "macro"):
        expected = metrics.f1_score(true, predicted, average=average, zero_division=0)
        assert record[f"{average}_f1"] == pytest.approx(expected)
    each = metrics.precision_recall_fscore_support(true, predicted, zero_division=0)
    for at, of_one in enumerate(record["of_each"]):
        assert [of_one[name] for name in ("precision", "recall", "f1")] == pytest.approx(
            [scores[at] for scores in each[:3]]
        )
    told = Model.of(laboratory.folder / "run").predictions(laboratory.folder / "ill.csv").table
    chosen = told.loc[frame["sample"]]
    assert np.array_equal(chosen["predicted_cold"], predicted[:, 1])
    probabilities = 1 / (1 + np.exp(-np.stack(frame["scores"])[:, 0]))
    assert np.allclose(chosen["p_flu"], probabilities)


def test_training_is_that_of_plain_torch(run, laboratory):
    _, weights = laboratory.trained(run)
    held_out = pd.read_parquet(laboratory.folder / "run" / "predictions.parquet")["sample"]
    mine = np.setdiff1d(np.arange(ROWS), held_out)
    inputs = standardised(FRAME[["a", "b", "c"]].to_numpy(), mine)
    expected = by_hand(run, mine, inputs, TRUE, torch.nn.BCEWithLogitsLoss())
    assert difference(weights, expected) < 1e-4


@pytest.mark.parametrize("loss", ["BCEWithLogitsLoss", "MultiLabelSoftMarginLoss"])
def test_workers_and_stacks_follow_serial(run, laboratory, loss):
    run = vary(run, loss=Entry(loss, loss, {}))
    _, expected = laboratory.trained(run, "serial")
    for strategy in (DDP, Entry("shared_memory", "shared_memory", {})):
        _, weights = laboratory.trained(using(strategy, 2, run), strategy.label)
        assert difference(weights, expected) < 1e-4
    results, refused = stack(laboratory, [run, vary(run, seed=run.seed + 1)])
    assert refused == []
    assert difference(results[0][1], expected) < 1e-5


@given(st.integers(30, 200), st.integers(1, 5), st.integers(2, 6), st.integers(0, 9))
def test_each_part_has_its_share_of_each_label(count, kinds, parts, seed):
    random = np.random.default_rng([count, kinds])
    table = (random.random((count, kinds)) < random.uniform(0.1, 0.6, kinds)).astype(np.int8)
    part_of = labels.spread(table, [1 / parts] * parts, seed)
    assert np.array_equal(part_of, labels.spread(table, [1 / parts] * parts, seed))
    sizes = np.bincount(part_of, minlength=parts)
    assert sizes.sum() == count and sizes.max() - sizes.min() <= 2 + kinds
    shares = np.array([table[part_of == part].sum(axis=0) for part in range(parts)])
    assert (np.abs(shares - table.sum(axis=0) / parts) <= 2 + kinds).all(), shares


def test_folds_and_validation_parts_are_stratified():
    rare = np.zeros((100, 2), np.int8)
    rare[:10, 0] = rare[50:60, 1] = 1
    assignable = folds.Assignable(rare)
    fold_of = assignable.folds(5, seed=0)
    for fold in range(5):
        assert rare[fold_of == fold].sum(axis=0).tolist() == [2, 2]
    _, held = folds.hold_back(assignable, np.arange(100), 0.2, seed=3)
    assert rare[held].sum(axis=0).tolist() == [2, 2]
    for part in (0.01, 0.02):
        assert len(folds.hold_back(assignable, np.arange(20), part, seed=3)[1]) == 1
    groups = np.arange(100) // 10
    fold_of = folds.Assignable(rare, groups).folds(5, seed=0)
    assert all(len({*fold_of[groups == group]}) == 1 for group in range(10))


def test_arrays_have_labels_too(tmp_path):
    file = tmp_path / "mine.npz"
    np.savez(file, inputs=np.ones((8, 2)), labels=np.eye(8, 3, dtype=bool))
    made = npz.load(None, path=str(file), task="multilabel")
    assert made.names == ["label 1", "label 2", "label 3"]
    np.savez(file, inputs=np.ones((8, 2)), labels=np.eye(8)[:, 0].astype(int))
    with pytest.raises(ValueError, match=r"expected \(N, T\) zeros and ones of T > 1 labels"):
        npz.load(None, path=str(file), task="multilabel")
    np.savez(file, inputs=np.ones((8, 2)), labels=np.eye(8, 3) * 2)
    with pytest.raises(ValueError, match=r"labels: expected zeros and ones; found 2\.0 in row 0"):
        npz.load(None, path=str(file), task="multilabel")
    of_test = {"test_inputs": np.ones((8, 2)), "test_labels": np.eye(8, 2)}
    np.savez(file, inputs=np.ones((8, 2)), labels=np.eye(8, 3), **of_test)
    with pytest.raises(ValueError, match=r"test_labels: found float64 \(8, 2\), .* unlike labels"):
        npz.load(None, path=str(file), task="multilabel")


WRONG = ["flu", ["flu"], ["flu", "a"], ["flu", "lost"], ["flu", "cold", "cold"], ["flu", "never"]]


@pytest.mark.parametrize("target", WRONG)
def test_what_is_no_list_of_labels_is_told(tmp_path, target):
    FRAME.assign(never=0).to_csv(tmp_path / "ill.csv", index=False)
    message = {
        "a": "column a cannot be predicted: expected zeros and ones; found",
        "lost": "has no column .lost.",
        "never": "column never cannot be predicted: a label holds for all samples or for none",
    }
    with pytest.raises(ValueError, match=message.get(target[-1], "a list of several")):
        table.load(None, path=str(tmp_path / "ill.csv"), target=target, task="multilabel")


def test_a_study_of_labels_says_how_well_each_is_predicted(tmp_path):
    FRAME.to_csv(tmp_path / "ill.csv", index=False)
    project = copy(tmp_path / "project")
    options = {"name": "table", "path": str(tmp_path / "ill.csv"), "target": LABELS}
    study = {"datasets": ["ill"], "folds": 2, "models": ["mlp"], "curves": True}
    project.configure(
        lambda config: config.update(
            datasets={"ill": options | {"task": "multilabel"}},
            models={"mlp": config["models"]["mlp"]},
            studies={"s": study},
        )
    )
    project.call()
    folder = project.results / "studies" / "s"
    scores = pd.read_csv(folder / "per_output_table.csv").set_index("output")
    assert list(scores.index) == LABELS
    table = pd.read_csv(folder / "accuracy_table.csv")
    assert scores["f1"].mean() == pytest.approx(table["macro_f1"][0])
    frame = pd.read_parquet(folder / "predictions.parquet")
    precision = [
        metrics.average_precision_score(
            np.stack(fold["true"]), 1 / (1 + np.exp(-np.stack(fold["scores"])))
        )
        for _, fold in frame.groupby("split")
    ]
    assert table["mean_average_precision"][0] == pytest.approx(np.mean(precision))
    page = (folder / "report.html").read_text()
    assert "Scores per output" in page and "targets standardised" not in page
    assert "flu, cold are predicted" in page and "iteratively stratified (Sechidis" in page
