"""Plot ROC curves, precision-recall curves and the reliability of predicted probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn import metrics as sklearn_metrics

from allcores_study.analysis import metrics, style, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts

TITLE = "how good are the probabilities?"
CAPTION = """
Quality of the predicted probabilities on the test folds, with the strategy ``{baseline}``. Left:
ROC curves. Middle: precision-recall curves. Thick lines: the mean over runs at each rate. Thin
lines, drawn for two classes: single runs. With two classes, the positive class is the last one;
with more, each class has a line against all others; with more than six, only the mean over classes
is drawn. *area*: the mean over runs of the area under the curve, or in the middle the average
precision. Dashed line: guessing, in the middle only for two classes. Right: reliability. The
samples of all runs are sorted by the probability of the predicted class and cut into ten parts of
equal size. Dots: the share of correct predictions in each part. On the diagonal, it equals the
probability; below it, the model is overconfident. *calibration error*: the mean distance from the
diagonal (Guo et al.: On calibration of modern neural networks, ICML 2017). Of several models, the
first of the study and the most accurate one are drawn.
"""

GRID = np.linspace(0, 1, 101)
MOST_CLASSES = 6  # with more, only the mean over classes is drawn
PARTS = 10


def figure(predictions: pd.DataFrame, classes: pd.DataFrame, facts: StudyFacts) -> Figure | None:
    """Draw three panels per dataset and model: ROC, precision against recall, reliability."""
    rows = predictions[predictions["strategy"] == facts.baseline]
    if classes.empty or rows.empty:
        return None
    ones = pd.Series(1, rows.index)
    pooled = tidy.of_first_and_best(rows, rows["true"] == rows["predicted"], ones)
    names_of = classes.groupby("dataset", sort=False)["class"].unique()
    figure, panels = style.panels_of(pooled, each=3, most=style.MOST_PANELS, columns=3)
    for (left, middle, last), group in panels:
        names = names_of[group["dataset"].iloc[0]]
        runs = [run for _, run in group.groupby(tidy.RUN, sort=False)]
        _draw(left, runs, names, roc)
        left.plot([0, 1], [0, 1], color="0.7", lw=1, ls="--")
        left.set(xlabel="false positive rate", ylabel="true positive rate")
        _draw(middle, runs, names, precision_recall)
        middle.set(xlabel="recall", ylabel="precision", ylim=(0, 1.03))
        if len(names) == 2:
            share = (group["true"] == 1).mean()
            middle.axhline(share, color="0.7", lw=1, ls="--")
        parts = reliability(group)
        least = 100 * min(parts["sure"].min(), parts["right"].min())
        last.plot([least, 100], [least, 100], color="0.7", lw=1)
        last.plot(100 * parts["sure"], 100 * parts["right"], "o-", color="0.2", ms=5)
        last.set_title(f"{last.get_title()}\ncalibration error {error(parts):.1%}")
        last.set(xlabel="probability of the predicted class (%)", ylabel="right (%)")
        last.set(xlim=(least - 1, 101), ylim=(least - 1, 101), box_aspect=1)
    return figure


def _draw(
    panel: Axes,
    runs: list[pd.DataFrame],
    names: np.ndarray,
    curve: Callable[[pd.DataFrame, int], tuple[np.ndarray, float] | None],
) -> None:
    """Draw the curves of each positive class: those of the runs, and their mean."""
    positives = [1] if len(names) == 2 else range(len(names))
    found: Any
    curves: dict[int | None, list[tuple[np.ndarray, float]]]
    curves = {k: [found for run in runs if (found := curve(run, k))] for k in positives}
    if len(curves) > MOST_CLASSES:
        curves = {None: [pair for found in curves.values() for pair in found]}
    colours = style.phases(curves)
    for k, found in curves.items():
        if not found:  # no test fold has this class
            continue
        colour, _ = colours[k]
        for values, _ in found if len(curves) == 1 and k is not None else ():
            panel.plot(GRID, values, color=colour, lw=0.5, alpha=0.5)
        area = np.mean([area for _, area in found])
        name = "mean of all classes" if k is None else names[k]
        mean = np.mean([values for values, _ in found], axis=0)
        panel.plot(
            GRID, mean, color=colour, lw=1.8, label=style.in_legend(f"{name}: area {area:.3f}")
        )
    panel.legend(loc="lower center")


def roc(run: pd.DataFrame, positive: int) -> tuple[np.ndarray, float] | None:
    """Return (true positive rate at each false positive rate of GRID, area).

    None: all samples are of one class.
    """
    true, scores = _of_class(run, positive)
    if true.all() or not true.any():
        return None
    false_rate, true_rate, _ = sklearn_metrics.roc_curve(true, scores)
    area = sklearn_metrics.roc_auc_score(true, scores)
    return np.interp(GRID, false_rate, true_rate), area


def precision_recall(run: pd.DataFrame, positive: int) -> tuple[np.ndarray, float] | None:
    """Return (precision at each recall of GRID, average precision); None: the class is absent."""
    true, scores = _of_class(run, positive)
    if not true.any():
        return None
    precision, recall, _ = sklearn_metrics.precision_recall_curve(true, scores)
    # By rising recall; the last point has no samples, and so no precision.
    values = np.interp(GRID, recall[-2::-1], precision[-2::-1])
    return values, sklearn_metrics.average_precision_score(true, scores)


def _of_class(run: pd.DataFrame, positive: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which samples of a run are of a class, and their predicted probability of it."""
    probabilities = metrics.probabilities(run)
    assert probabilities is not None  # of classes
    return (run["true"] == positive).to_numpy(), probabilities[:, positive]


def reliability(predictions: pd.DataFrame) -> pd.DataFrame:
    """Return the mean certainty and the share of correct predictions in ten parts of equal size.

    The parts are in the order of rising certainty.

    Args:
        predictions: see metrics.predictions().

    Returns:
        A row per part: sure, right, samples.
    """
    probabilities = metrics.probabilities(predictions)
    assert probabilities is not None  # of classes
    sure = probabilities.max(axis=1)
    right = (predictions["true"] == predictions["predicted"]).to_numpy()
    parts = np.array_split(np.argsort(sure, kind="stable"), min(PARTS, len(sure)))
    rows = [(sure[part].mean(), right[part].mean(), len(part)) for part in parts]
    return pd.DataFrame(rows, columns=["sure", "right", "samples"])


def error(parts: pd.DataFrame) -> float:
    """Return the expected calibration error, 0..1."""
    return np.average(np.abs(parts["sure"] - parts["right"]), weights=parts["samples"])
