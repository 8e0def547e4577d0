"""Plot how often a predicted class is right against its predicted probability."""

import numpy as np
import pandas as pd

from allcores.analysis import metrics, style, tidy

TITLE = "are the probabilities right?"
SECTION = "{metric}"
WHEN = "classes"
ORDER = 65
CAPTION = """
Reliability of the probabilities: held-out samples, pooled over folds, seeds and schedules of the
strategy ``{baseline}``, sorted by the probability of the predicted class into ten parts of equal
size; for each part the share of correct predictions. On the diagonal the two agree; below it the
network is too sure. *error*: the mean distance from the diagonal (expected calibration error; Guo
et al.: On calibration of modern neural networks, ICML 2017). Of more than 24 models the first are
shown.
"""

PARTS = 10


def figure(predictions, facts):
    """One panel per dataset and model."""
    pooled = predictions[predictions["strategy"] == facts.baseline]
    shown = ["model", *tidy.varying(pooled, ["dataset", "train_size"])]
    groups = list(pooled.groupby(shown, sort=False))[: style.MOST_PANELS]
    figure, axes = style.panels(len(groups), columns=3)
    for panel, (names, group) in zip(axes, groups, strict=True):
        parts = reliability(group)
        least = 100 * min(parts["sure"].min(), parts["right"].min())
        panel.plot([least, 100], [least, 100], color="0.7", lw=1)
        panel.plot(100 * parts["sure"], 100 * parts["right"], "o-", color="0.2", ms=5)
        style.name_panel(panel, shown, names, f": error {error(parts):.1%}")
        panel.set(
            xlabel="probability of the predicted class (%)",
            ylabel="right (%)",
        )
    return figure


def reliability(predictions):
    """In ten parts of equal size, by rising certainty: how sure, and how often right.

    Args:
        predictions: true, predicted, scores; see metrics.predictions().

    Returns:
        pandas.DataFrame of sure, right, samples.
    """
    sure = metrics.probabilities(predictions).max(axis=1)
    right = (predictions["true"] == predictions["predicted"]).to_numpy()
    parts = np.array_split(np.argsort(sure, kind="stable"), min(PARTS, len(sure)))
    rows = [(sure[part].mean(), right[part].mean(), len(part)) for part in parts]
    return pd.DataFrame(rows, columns=["sure", "right", "samples"])


def error(parts):
    """The expected calibration error, 0..1."""
    return np.average(np.abs(parts["sure"] - parts["right"]), weights=parts["samples"])
