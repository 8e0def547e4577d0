"""Plot how busy the cores were while a study was running."""

import numpy as np
import pandas as pd

from allcores import style, tables

PAUSE = 30  # seconds without any run: a pause between two calls of snakemake, cut out
BINS = 240


def busy_cores(utilisation):
    """Cores in use over time, summed over the runs of a study.

    Args:
        utilisation: time (seconds since 1970) and cpu_seconds used so far, per run.

    Returns:
        (edges, busy): (BINS + 1,) seconds since the start, pauses cut out, and (BINS,) cores.
    """
    runs = [
        run.sort_values("time") for _, run in utilisation.groupby([*tables.CELL, *tables.REPEAT])
    ]
    clock = _without_pauses(runs)
    edges = np.linspace(0, max(clock(run["time"].iloc[-1]) for run in runs), BINS + 1)
    used = sum(np.interp(edges, clock(run["time"]), run["cpu_seconds"]) for run in runs)
    return edges, np.diff(used) / np.diff(edges)


def _without_pauses(runs):
    """A function from seconds since 1970 to seconds since the start, with the pauses cut out."""
    real, shown = [], []
    for start, stop in sorted((run["time"].iloc[0], run["time"].iloc[-1]) for run in runs):
        if not real:
            real, shown = [start, start], [0.0, 0.0]
        if start - real[-1] > PAUSE:
            real += [start, start]
            shown += [shown[-1], shown[-1]]
        if stop > real[-1]:
            shown[-1] += stop - real[-1]
            real[-1] = stop
    return lambda time: np.interp(time, real, shown)


def utilisation_figure(runs, utilisation):
    """Busy cores over time, and their mean."""
    edges, busy = busy_cores(utilisation)
    cores = runs["machine_cores_allowed"].max()
    figure, (panel,) = style.panels(1, width=8.5, height=3)
    panel.stairs(busy, edges / 60, fill=True, color="0.75")
    panel.axhline(cores, color="0.3", lw=1, ls="--")
    panel.annotate(f"{cores} cores", (edges[-1] / 60, cores), va="bottom", ha="right", fontsize=9)
    panel.axhline(busy.mean(), color="C0", lw=1.5)
    panel.annotate(
        f"mean {busy.mean():.2f} cores ({busy.mean() / cores:.0%})",
        (0, busy.mean()),
        xytext=(4, -4),
        textcoords="offset points",
        va="top",
        color="C0",
        fontsize=9,
    )
    panel.set(
        xlabel="time since the first run began (min)",
        ylabel="busy cores",
        xlim=(0, edges[-1] / 60),
        ylim=(0, cores * 1.12),
    )
    return figure


if __name__ == "__main__":
    style.save(
        utilisation_figure(
            pd.read_csv(snakemake.input.runs), pd.read_csv(snakemake.input.utilisation)
        ),
        snakemake.output,
    )
