"""Plot confusion matrices, pooled over folds, seeds and schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.metrics import ConfusionMatrixDisplay

from allcores_study.analysis import style, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts

TITLE = "confusion matrix"
CAPTION = """
Confusion matrices on the test folds. Each row shows how the samples of one class were classified,
in per cent. Samples are pooled over folds, seeds and schedules of the strategy ``{baseline}``. Of
several models, the first of the study and the most accurate one are drawn; confusion.csv has all.
"""

MOST_NUMBERS = 12  # classes; with more, the numbers would not fit into their boxes
MOST_LABELS = 25  # per axis; with more classes, only every second or third is named


def figure(confusion: pd.DataFrame, facts: StudyFacts) -> Figure | None:
    """Draw one panel per dataset and model, from the baseline's runs; each row sums to 100 %."""
    of_baseline = confusion[confusion["strategy"] == facts.baseline]
    if of_baseline.empty:
        return None
    pooled = of_first_and_best(of_baseline)
    letters = pooled["true"].astype(str).str.len().max()
    size = {"width": 4.1 + 0.06 * letters, "height": 3.4 + 0.04 * letters, "columns": 3}
    figure, panels = style.panels_of(pooled, **size)
    for panel, group in panels:
        counts = group.pivot_table(
            index="true", columns="predicted", values="samples", aggfunc="sum", sort=False
        )
        order = list(dict.fromkeys(group["true"]))
        counts = counts.reindex(index=order, columns=order).fillna(0)
        # Of a class without a sample, nothing is said.
        percent = (100 * counts.div(counts.sum(axis=1), axis=0)).fillna(0).to_numpy()
        panel.grid(visible=False)
        drawn = ConfusionMatrixDisplay(percent, display_labels=order).plot(
            include_values=len(order) <= MOST_NUMBERS,
            values_format=".0f",
            text_kw={"size": min(13, max(7, 84 / len(order)))},
            cmap="Greys",
            im_kw={"vmin": 0, "vmax": 100},
            colorbar=False,
            ax=panel,
        )
        # By itself it takes the middle of the values, not of the colours.
        for text, value in zip(np.ravel(drawn.text_), np.ravel(percent), strict=False):
            if text is not None:
                text.set_color("white" if value > 50 else "black")
        shown = range(0, len(order), -(-len(order) // MOST_LABELS))
        labels = [order[place] for place in shown]
        panel.set_xticks(shown, labels, rotation=90 if letters > 3 else 0)
        panel.set_yticks(shown, labels)
        if panel is panels[-1][0]:
            figure.colorbar(drawn.im_, ax=panel, label="% of the true class")
        panel.set(xlabel="predicted class", ylabel="")
    figure.axes[0].set_ylabel("true class")
    return figure


def of_first_and_best(confusion: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the models that are drawn."""
    right = confusion["samples"].where(confusion["true"] == confusion["predicted"], 0)
    return tidy.of_first_and_best(confusion, right, confusion["samples"])
