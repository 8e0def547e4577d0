"""Plot training loss against training time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allcores_study.analysis import style, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TITLE = "training loss"
CAPTION = """
Training loss by training time, without evaluation. Markers: the mean over folds and seeds, one per
epoch. Band: their range. Colour: the strategy. Line style: its schedules, workers and threads.
"""

# The columns that distinguish the lines of a panel.
LINE = ["strategy", "schedule", "nodes", "workers", "threads"]


def figure(epochs: pd.DataFrame) -> Figure:
    """Draw one panel per dataset and model: the mean of repeats, and their range as a band."""
    epochs = tidy.with_elapsed(epochs)
    colours = style.strategies(epochs["strategy"])
    schedules = epochs["schedule"].unique()
    lines = epochs[LINE].drop_duplicates().groupby("strategy")[LINE[1:]].apply(_tuples)
    figure, panels = style.panels_of(epochs)
    for panel, group in panels:
        for _, repeats in group.groupby(tidy.SETTINGS, sort=False):
            first = repeats.iloc[0]
            colour, marker = colours[first["strategy"]]
            line = tidy.learning_curve(repeats, "loss")
            style.band(
                *(panel, line["elapsed"], line),
                color=colour,
                marker=marker,
                ms=4,
                ls=style.dash(tuple(first[LINE[1:]]), lines[first["strategy"]]),
                label=style.setup_text(first)
                + (f" ({first['schedule']})" if len(schedules) > 1 else ""),
            )
        panel.set(xlabel="training time (s)")
        style.plain_logarithmic(panel.yaxis)
    figure.axes[0].set_ylabel("training loss")
    style.legend_below(figure)
    return figure


def _tuples(rows: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(rows.itertuples(index=False, name=None))
