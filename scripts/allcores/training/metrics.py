"""The measures that every run computes from its predictions. No torch."""

import numpy as np

OF_CLASSES = ("accuracy", "confusion", "accuracy_per_class")
OF_NUMBERS = ("r2", "rmse", "mae")


def of_classes(true, predicted, classes):
    """{"accuracy": share in 0..1, "confusion": (classes, classes) nested lists of counts, true
    class by predicted class, "accuracy_per_class": recalls, None for a class without samples}

    Args:
        true, predicted: (n,) int64, in 0 .. classes - 1.
    """
    confusion = confusion_matrix(true, predicted, classes)
    recalls = accuracy_per_class(confusion)
    return {
        "accuracy": accuracy(confusion),
        "confusion": confusion.tolist(),
        "accuracy_per_class": [None if np.isnan(recall) else float(recall) for recall in recalls],
    }


def of_numbers(true, predicted):
    """{"r2": coefficient of determination, 1 at best; None if the true values are all equal,
    "rmse": root of the mean squared error, "mae": mean absolute error}

    Args:
        true, predicted: (n,) float64.
    """
    error, spread = true - predicted, np.sum((true - true.mean()) ** 2)
    return {
        # Rounding alone could leave a spread of equal numbers.
        "r2": float(1 - np.sum(error**2) / spread) if np.ptp(true) and spread else None,
        "rmse": float(np.sqrt(np.mean(error**2))),
        "mae": float(np.mean(np.abs(error))),
    }


def in_words(measures):
    """The main measure as text: "accuracy 96.33%" or "R2 0.4821"."""
    if "accuracy" in measures:
        return f"accuracy {measures['accuracy']:.2%}"
    return "R2 undefined" if measures["r2"] is None else f"R2 {measures['r2']:.4f}"


def confusion_matrix(labels, predicted, classes):
    """(classes, classes) int64: how many samples of class i were predicted as class j.

    Args:
        labels, predicted: (n,) int64, in 0 .. classes - 1.
    """
    return np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)


def accuracy(confusion):
    """Share of samples on the diagonal, 0..1; NaN without samples."""
    total = confusion.sum()
    return float(np.trace(confusion) / total) if total else float("nan")


def accuracy_per_class(confusion):
    """Recall of each class, (classes,) float64 in 0..1; NaN for a class without samples."""
    totals = confusion.sum(axis=1)
    return np.divide(np.diag(confusion), totals, out=np.full(len(totals), np.nan), where=totals > 0)
