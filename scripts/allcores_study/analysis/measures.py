"""Metrics of predictions, mostly scikit-learn's. Each public function is a metric.

A metric takes the true and the predicted values, (n,), or (n, T) for T numbers or labels, and the
probability of every class or label, (n, classes), or None if the targets are numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from sklearn import metrics as sklearn_metrics

from allcores_study.analysis.metrics import metric
from allcores_study.tasks import base, segmentation


@metric(title="accuracy", in_percent=True, bounds=(0, 1))
def accuracy(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray | None) -> float:
    # scikit-learn's takes a hundred times as long for a short run, and is the same number.
    return float((true == predicted).mean())


@metric(title="balanced accuracy", in_percent=True, bounds=(0, 1))
def balanced_accuracy(
    true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray | None
) -> float:
    return sklearn_metrics.balanced_accuracy_score(true, predicted)


@metric(title="macro F1", targets=("classes", "labels"), in_percent=True, bounds=(0, 1))
def macro_f1(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray | None) -> float:
    return sklearn_metrics.f1_score(true, predicted, average="macro", zero_division=0.0)


@metric(title="micro F1", targets=("labels",), in_percent=True, bounds=(0, 1))
def micro_f1(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray | None) -> float:
    """Compute F1 over all labels of all samples together."""
    return sklearn_metrics.f1_score(true, predicted, average="micro", zero_division=0.0)


@metric(title="mean average precision", targets=("labels",), in_percent=True, bounds=(0, 1))
def mean_average_precision(
    true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray
) -> float:
    """Average over the labels; NaN if one of them occurs in no sample."""
    if not true.any(axis=0).all():
        return math.nan
    return sklearn_metrics.average_precision_score(true, probabilities, average="macro")


@metric(title="ROC AUC", in_percent=True, bounds=(0, 1))
def roc_auc(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray) -> float:
    """With more than two classes, average over each class against all others."""
    return _mean(
        lambda k: sklearn_metrics.roc_auc_score(true == k, probabilities[:, k]),
        *(true, probabilities),
    )


@metric(title="PR AUC", in_percent=True, bounds=(0, 1))
def pr_auc(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray) -> float:
    """Compute the average precision; with more than two classes, each against all others."""
    return _mean(
        lambda k: sklearn_metrics.average_precision_score(true == k, probabilities[:, k]),
        *(true, probabilities),
    )


@metric(title="sensitivity", in_percent=True, bounds=(0, 1))
def sensitivity(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray) -> float:
    """Compute recall: the share of positive samples that are predicted to be positive."""
    return _mean(lambda k: (predicted[true == k] == k).mean(), true, probabilities)


@metric(title="specificity", in_percent=True, bounds=(0, 1))
def specificity(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray) -> float:
    """Compute the share of negative samples that are predicted to be negative."""
    return _mean(lambda k: (predicted[true != k] != k).mean(), true, probabilities)


@metric(title="F1", in_percent=True, bounds=(0, 1))
def f1(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray) -> float:
    return _mean(
        lambda k: sklearn_metrics.f1_score(true == k, predicted == k, zero_division=0.0),
        *(true, probabilities),
    )


def _mean(of_class: Callable[[int], float], true: np.ndarray, probabilities: np.ndarray) -> float:
    """Average over classes, each against all others; NaN if a class is absent.

    With two classes, only the last one counts, which is the positive one.
    """
    labels = range(probabilities.shape[1])
    if set(true) != set(labels):
        return math.nan
    return float(np.mean([of_class(k) for k in (labels[1:] if len(labels) == 2 else labels)]))


@metric(title="log loss", less_is_better=True, bounds=(0, None))
def log_loss(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray) -> float:
    return sklearn_metrics.log_loss(true, probabilities, labels=np.arange(probabilities.shape[1]))


@metric(title="Brier score", less_is_better=True, bounds=(0, 2))
def brier(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray) -> float:
    """Compute the mean squared error of the probabilities (Brier 1950).

    With two classes, only the positive one counts: 0 to 1. With more, errors are summed over the
    classes: 0 to 2.
    """
    labels = np.arange(probabilities.shape[1])
    return sklearn_metrics.brier_score_loss(true, probabilities, labels=labels)


@metric(title="mean IoU", targets=("pixels",), in_percent=True, bounds=(0, 1))
def mean_iou(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray | None) -> float:
    """Compute the mean intersection over union of the pixels, over the classes that occur."""
    return _of_pixels("mean_iou", true, predicted)


@metric(title="mean Dice", targets=("pixels",), in_percent=True, bounds=(0, 1))
def mean_dice(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray | None) -> float:
    """Compute the mean Dice coefficient of the pixels, over the classes that occur."""
    return _of_pixels("mean_dice", true, predicted)


@metric(title="pixel accuracy", targets=("pixels",), in_percent=True, bounds=(0, 1))
def pixel_accuracy(
    true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray | None
) -> float:
    return _of_pixels("pixel_accuracy", true, predicted)


def _of_pixels(name: str, true: np.ndarray, predicted: np.ndarray) -> float:
    """Return one of the measures; NaN if no pixel has a class."""
    has_class = true != base.WITHOUT_CLASS
    classes = int(max(true[has_class].max(initial=0), predicted.max(initial=0))) + 1
    value = segmentation.Segmentation(classes).measured(true, predicted)[name]
    return math.nan if value is None else value


@metric(title="R²", targets=("numbers",), bounds=(None, 1))
def r2(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray | None) -> float:
    return sklearn_metrics.r2_score(true, predicted) if np.ptp(true, axis=0).all() else math.nan


@metric(title="RMSE", targets=("numbers",), less_is_better=True, bounds=(0, None))
def rmse(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray | None) -> float:
    return sklearn_metrics.root_mean_squared_error(true, predicted)


@metric(title="MAE", targets=("numbers",), less_is_better=True, bounds=(0, None))
def mae(true: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray | None) -> float:
    return sklearn_metrics.mean_absolute_error(true, predicted)
