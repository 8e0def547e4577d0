"""Plot predicted against true values, where these are numbers."""

import numpy as np

from allcores.analysis import style, tidy

TITLE = "predicted and true"
SECTION = "{metric}"
WHEN = "numbers"
ORDER = 66
CAPTION = """
Predicted against true values of the held-out samples, from all folds, seeds and schedules of the
strategy ``{baseline}``. On the diagonal the two are equal. *RMSE*: root of the mean squared
residual of all of them.
"""


def figure(predictions, facts):
    """One panel per dataset and model."""
    pooled = predictions[predictions["strategy"] == facts.baseline]
    shown = ["model", *tidy.varying(pooled, ["dataset", "train_size"])]
    groups = list(pooled.groupby(shown, sort=False))
    figure, axes = style.panels(len(groups), width=4.2, height=3.8, columns=3)
    for panel, (names, group) in zip(axes, groups, strict=True):
        true, predicted = group["true"], group["predicted"]
        rmse = np.sqrt(np.mean((true - predicted) ** 2))
        ends = [true.min(), true.max()]
        panel.plot(ends, ends, color="0.7", lw=1)
        panel.plot(true, predicted, ".", color="0.2", alpha=0.4, ms=4)
        style.name_panel(panel, shown, names, f": RMSE {rmse:.4g}")
        panel.set(
            xlabel="true",
            ylabel="predicted",
        )
    return figure
