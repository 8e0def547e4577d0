"""Plot how busy the cores were while a study ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allcores_study.analysis import style, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts

TITLE = "CPU utilisation"
CAPTION = """
Busy cores over time, coloured by strategy. The CPU time of the study's runs counts, with start-up
and evaluation, without the runs of inner folds. Pauses between invocations of snakemake are cut
out. Solid line: the mean. Dashed line: the cores that could be used.
"""

BINS = 240


def figure(runs: pd.DataFrame, utilisation: pd.DataFrame, facts: StudyFacts) -> Figure | None:
    """Draw busy cores over time, stacked by strategy, and their mean."""
    if facts.selects or not facts.compares_speeds(runs):
        return None
    figure, (panel,) = style.panels(1, width=8.5, height=3)
    draw(panel, runs, utilisation)
    panel.set_xlabel("time since the first run began (min)")
    style.legend_below(figure)
    return figure


def draw(panel: Axes, runs: pd.DataFrame, utilisation: pd.DataFrame) -> float:
    """Draw busy cores over time into a panel, and return its length in minutes."""
    edges, busy = busy_cores(utilisation)
    colours = style.strategies(runs["strategy"])
    cores = tidy.cores_available(runs)
    below = np.zeros(len(edges) - 1)
    for strategy, values in busy.items():
        panel.stairs(
            below + values,
            edges / 60,
            baseline=below,
            fill=True,
            color=colours[strategy][0],
            alpha=0.6,
            label=strategy,
        )
        below = below + values
    panel.axhline(cores, color="0.3", lw=1, ls="--")
    panel.annotate(f"{cores} cores", (edges[-1] / 60, cores), va="bottom", ha="right", fontsize=9)
    panel.axhline(below.mean(), color="black", lw=1.5)
    panel.annotate(
        f"mean {below.mean():.2f} cores ({below.mean() / cores:.0%})",
        (0, below.mean()),
        xytext=(4, -4),
        textcoords="offset points",
        va="top",
        fontsize=9,
        bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.8},
    )
    panel.set(ylabel="busy cores", xlim=(0, edges[-1] / 60), ylim=(0, cores * 1.14))
    return edges[-1] / 60


def busy_cores(utilisation: pd.DataFrame) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the busy cores over time, by strategy.

    Args:
        utilisation: time (seconds since 1970) and cpu_seconds used so far, per run.

    Returns:
        (edges, busy): (BINS + 1,) seconds since the start, with pauses cut out; and strategy ->
        (BINS,) cores that its runs kept busy.
    """
    runs = [run for _, run in utilisation.groupby([*tidy.RUN, "session"])]
    clock = tidy.without_pauses([(run["time"].iloc[0], run["time"].iloc[-1]) for run in runs])
    edges = np.linspace(0, max(clock(run["time"].iloc[-1]) for run in runs), BINS + 1)
    busy = {name: np.zeros(BINS) for name in dict.fromkeys(utilisation["strategy"])}
    for run in runs:
        used = np.interp(edges, clock(run["time"]), run["cpu_seconds"])
        busy[run["strategy"].iloc[0]] += np.diff(used) / np.diff(edges)
    return edges, busy
