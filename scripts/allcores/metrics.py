"""Accuracy and its intervals, from predictions to tables. No torch."""

import numpy as np


def confusion_matrix(labels, predicted, classes):
    """(classes, classes) int64: how often class i was taken for class j."""
    return np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)


def accuracy(confusion):
    """Share of samples on the diagonal, 0..1; NaN without samples."""
    total = confusion.sum()
    return float(np.trace(confusion) / total) if total else float("nan")


def accuracy_per_class(confusion):
    """Share of each class that was recognised (recall), NaN for a class without samples."""
    totals = confusion.sum(axis=1)
    return np.divide(np.diag(confusion), totals, out=np.full(len(totals), np.nan), where=totals > 0)


def interval(values, confidence=0.95):
    """Half the width of the t interval of the mean; NaN for fewer than two values.

    The values of a cross-validation share training samples, so that their spread understates the
    uncertainty somewhat (Bengio & Grandvalet 2004); read the interval as descriptive.
    """
    from scipy.stats import t

    count = len(values)
    if count < 2:
        return float("nan")
    return float(t.ppf((1 + confidence) / 2, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
