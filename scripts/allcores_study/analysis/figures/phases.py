"""Plot the phases of an epoch of every setup as stacked bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import ticker

from allcores_study.analysis import style, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts

TITLE = "where the time goes"
CAPTION = """
Time of an epoch by phase, on the first worker. Bars: median seconds per phase, without the first
epoch, which is warm-up. *wait*: time until other workers are ready. If a strategy hides part of its
communication behind computation, only the rest is shown as *communicate*.
"""

# In the order of a step; phases that strategies define follow.
IN_A_STEP = ["data", "compute", "wait", "update"]


def figure(epochs: pd.DataFrame, facts: StudyFacts) -> Figure | None:
    """Draw one panel per dataset and model: a bar per setup, with median seconds per epoch."""
    if not facts.compares_speeds(epochs):
        return None
    phases = [name for name in epochs if name.endswith("_seconds")]
    others = [name for name in phases if name.removesuffix("_seconds") not in IN_A_STEP]
    phases = [f"{name}_seconds" for name in IN_A_STEP if f"{name}_seconds" in phases] + others
    measured = tidy.without_warm_up(epochs)
    setups = measured.drop_duplicates(tidy.SPEED_SETTINGS)
    rows = setups.groupby(["model", "dataset", "train_size"]).size().max()
    figure, panels = style.panels_of(measured, width=5, height=1 + 0.32 * rows, columns=2)
    for panel, group in panels:
        medians = group.groupby(tidy.SPEED_SETTINGS, sort=False)[phases].median()
        medians = medians.fillna(0).reset_index()
        start = np.zeros(len(medians))
        for phase, (colour, hatch) in style.phases(phases).items():
            panel.barh(
                range(len(medians)),
                medians[phase],
                left=start,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                lw=0.3,
                label=phase.removesuffix("_seconds").replace("_", "-"),
            )
            start = start + medians[phase].to_numpy()
        style.name_rows(panel, [style.setup_text(row) for _, row in medians.iterrows()])
        panel.set_xlabel("time per epoch (s)")
        panel.grid(visible=False, axis="y")
        panel.xaxis.set_major_locator(ticker.MaxNLocator(5))
    style.legend_below(figure)
    return figure
