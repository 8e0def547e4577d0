"""Accuracy, from predictions to confusion matrices. No torch."""

import numpy as np


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
