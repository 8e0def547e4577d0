"""Figures of what is predicted: their numbers, and that they are drawn."""

import numpy as np
import pandas as pd
import pytest

from allcores_study.analysis import products, style, tidy
from allcores_study.analysis.figures import probabilities


def predictions(sure, right, **columns):
    """Of two classes: as many samples as `right` has, each so sure of class 0."""
    logit = np.log(sure / (1 - sure))
    scores = [np.array([logit, 0.0], np.float32) for _ in right]
    frame = pd.DataFrame({"true": [0 if good else 1 for good in right], "scores": scores})
    return frame.assign(predicted=0, **columns)


def test_a_network_that_is_as_often_right_as_it_says_has_no_error():
    parts = probabilities.reliability(predictions(0.75, [True, True, True, False] * 10))
    assert list(parts["sure"]) == pytest.approx([0.75] * 10)
    assert np.average(parts["right"], weights=parts["samples"]) == 0.75
    both = pd.concat([predictions(0.9, [True] * 10), predictions(0.6, [False] * 10)])
    parts = probabilities.reliability(both)
    assert list(parts["right"]) == [0.0] * 5 + [1.0] * 5
    assert probabilities.error(parts) == pytest.approx((0.6 + 0.1) / 2, abs=1e-6)


def runs_of_two(*folds):
    """A frame of runs, each a list of (true class, probability of class 1)."""
    parts = []
    for fold, pairs in enumerate(folds):
        true, sure = map(np.array, zip(*pairs, strict=True))
        scores = [np.array([0.0, np.log(p / (1 - p))], np.float32) for p in sure]
        label = dict.fromkeys(tidy.SETTINGS, "x") | {"split": f"fold {fold}", "seed": 0}
        label |= {"strategy": "serial", "model": "mlp"}
        frame = pd.DataFrame({"true": true, "predicted": (sure > 0.5) * 1, "scores": scores})
        parts.append(frame.assign(**label))
    return pd.concat(parts)


def test_roc_and_precision_recall_are_those_of_each_run():
    perfect = [(0, 0.1), (0, 0.2), (1, 0.8), (1, 0.9)]
    half = [(0, 0.1), (1, 0.2), (0, 0.8), (1, 0.9)]
    frame = runs_of_two(perfect, half)
    first, second = (run for _, run in frame.groupby("split"))
    assert probabilities.roc(first, 1)[1] == probabilities.precision_recall(first, 1)[1] == 1
    values, area = probabilities.roc(second, 1)
    # Of four pairs of a positive and a negative, three are in the right order.
    assert area == 0.75
    assert (values[0], values[49], values[51], values[-1]) == (0.5, 0.5, 1, 1)
    assert probabilities.roc(first[first["true"] == 1], 1) is None, "one class alone"
    frame = frame.assign(dataset="d")
    classes = pd.DataFrame({"dataset": ["d", "d", "e"], "class": ["healthy", "ill", "other"]})
    facts = products.StudyFacts("s", "serial", None, ())
    both = pd.concat([frame, frame.assign(model="other", predicted=frame["true"])])
    drawn = probabilities.figure(both, classes, facts)
    assert len(drawn.axes) == 6
    left, right, *_ = drawn.axes
    assert left.get_legend_handles_labels()[1] == ["ill: area 0.875"]
    assert right.get_legend_handles_labels()[1][0].startswith("ill: area 0.9")
    thin = [line for line in left.lines if line.get_linewidth() == 0.5]
    assert len(thin) == 2, "one for each run"
    style.plt.close(drawn)
