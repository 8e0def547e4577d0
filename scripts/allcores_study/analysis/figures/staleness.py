"""Plot the staleness of asynchronous updates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from allcores_study.analysis import style, tidy
from allcores_study.analysis.wording import by_model, count

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TITLE = "staleness"
CAPTION = """
Staleness of an update: how many updates others made after the weights were read and before the
update computed from them was applied. Marks: the share of each staleness among all updates of a
strategy with that many workers, over all runs and epochs. Colour: the strategy. Line style: the
number of workers. The vertical axis is logarithmic; a staleness that never occurred has no mark.
"""


def figure(staleness: pd.DataFrame) -> Figure:
    """Draw one panel per dataset and model: the share of updates by staleness, a line per setup."""
    colours = style.strategies(staleness["strategy"])
    workers = sorted(staleness["workers"].unique())
    figure, panels = style.panels_of(staleness, width=4.6)
    for panel, group in panels:
        for _, repeats in group.groupby(tidy.SPEED_SETTINGS, sort=False):
            first = repeats.iloc[0]
            colour, marker = colours[first["strategy"]]
            share = repeats[repeats["updates"] > 0].groupby("staleness")["updates"].sum()
            panel.plot(
                share.index,
                share / share.sum(),
                color=colour,
                marker=marker,
                ms=5,
                ls=style.dash(first["workers"], workers),
                label=style.setup_text(first),
            )
        panel.set_xlabel("staleness (updates)")
        style.plain_logarithmic(panel.yaxis)
        panel.xaxis.get_major_locator().set_params(integer=True)
    figure.axes[0].set_ylabel("share of the updates")
    style.legend_below(figure)
    return figure


def sentences(staleness: pd.DataFrame) -> Iterator[str]:
    """Yield the staleness of the updates of each asynchronous setup."""
    for names, group in by_model(staleness):
        for (strategy, workers), rows in group.groupby(["strategy", "workers"], sort=False):
            updates = rows.groupby("staleness")["updates"].sum()
            mean = (updates.index * updates).sum() / updates.sum()
            yield (
                f"{names}, {strategy} with {count(workers, 'worker')}: "
                f"{updates.get(0, 0) / updates.sum():.0%} of the updates were computed from "
                f"weights that no other update had changed since; the mean staleness was "
                f"{mean:.2f} updates, the largest {updates.index.max()}."
            )
