"""Plot predicted against true numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allcores_study.analysis import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts

TITLE = "predicted and true"
CAPTION = """
Predicted and true values on the test folds. Dots: the samples of all folds, seeds and schedules of
the strategy ``{baseline}``. On the diagonal, the two values are equal. *RMSE*: the root of the mean
squared residual over all dots.
"""


def figure(predictions: pd.DataFrame, facts: StudyFacts) -> Figure | None:
    """Draw one panel per dataset, model and predicted number."""
    pooled = predictions[predictions["strategy"] == facts.baseline]
    if facts.targets != "numbers" or pooled.empty:
        return None
    if "output" in pooled:
        pooled = pooled.explode(["true", "predicted", "output"]).astype(
            {"true": float, "predicted": float}
        )
        pooled["model"] = pooled["model"] + ": " + pooled["output"].astype(str)
    figure, panels = style.panels_of(pooled, width=4.2, height=3.8, columns=3)
    for panel, group in panels:
        true, predicted = group["true"], group["predicted"]
        rmse = np.sqrt(np.mean((true - predicted) ** 2))
        ends = [true.min(), true.max()]
        panel.plot(ends, ends, color="0.7", lw=1)
        panel.plot(true, predicted, ".", color="0.2", alpha=0.4, ms=4)
        panel.set_title(f"{panel.get_title()}\nRMSE {rmse:.4g}")
        panel.set(xlabel="true", ylabel="predicted")
    return figure
