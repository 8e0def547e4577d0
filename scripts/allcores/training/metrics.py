"""The measures that every run computes from its predictions. No torch."""

import numpy as np

OF_CLASSES = ("accuracy", "confusion")
OF_NUMBERS = ("r2", "rmse", "mae")


def of_classes(true, predicted, classes):
    """{"accuracy": share in 0..1, "confusion": (classes, classes) nested lists of counts, true
    class by predicted class}

    Args:
        true, predicted: (n,) int64, in 0 .. classes - 1.
    """
    pairs = np.bincount(true * classes + predicted, minlength=classes**2)
    return {
        "accuracy": float(np.mean(true == predicted)),
        "confusion": pairs.reshape(classes, classes).tolist(),
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
