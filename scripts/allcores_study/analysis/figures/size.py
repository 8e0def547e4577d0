"""Plot epoch time against the number of training samples, with the fitted lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from allcores_study.analysis import style, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "epoch time by training-set size"
CAPTION = """
Epoch time by number of training samples. Marks: the median epoch of each run, without the first
one, which is warm-up. Lines: the least-squares fit of each setup.
"""


def figure(epochs: pd.DataFrame, runs: pd.DataFrame, size_table: pd.DataFrame) -> Figure:
    """Draw one panel per dataset and model: a dot per run, a line per setup."""
    timed = tidy.timed(runs, epochs)
    colours = style.strategies(timed["strategy"])
    figure, panels = style.panels_of(timed, more=["dataset"], width=5)
    most = timed["train_samples"].max()
    for panel, group in panels:
        for _, fit in size_table.iterrows():
            rows = group[(group[tidy.SETUP] == fit[tidy.SETUP]).all(axis=1)]
            if rows.empty:
                continue
            colour, marker = colours[fit["strategy"]]
            panel.plot(
                *(rows["train_samples"], rows["epoch_seconds"], marker),
                color=colour,
                ms=5,
                label=style.setup_text(fit),
            )
            ends = fit["intercept_seconds"] + fit["seconds_per_1000"] * pd.Series([0, most]) / 1000
            panel.plot([0, most], ends, color=colour)
        panel.set_xlabel("training samples")
        panel.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("time per epoch (s)")
    style.legend_below(figure)
    return figure
