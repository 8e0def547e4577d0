"""Plot how the time of an epoch grows with the number of training samples, with fitted lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from allcores_study.analysis import style, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "epoch time by training-set size"
CAPTION = """
Epoch time by number of training samples. Marks: the median epoch of each run, without the first
one, which is warm-up. Lines: the least-squares fit of each setup, seconds = intercept + slope x
samples, with the standard error of the slope. The intercept is the cost of an epoch, however few
samples it has.
"""


def figure(epochs: pd.DataFrame, runs: pd.DataFrame) -> Figure | None:
    """Draw one panel per dataset and model: a dot per run, a line per setup."""
    timed = tidy.timed(runs, epochs)
    if timed["train_size"].nunique() < 2:
        return None
    colours = style.strategies(timed["strategy"])
    figure, panels = style.panels_of(timed, more=["dataset"], width=5)
    setups = [*timed[tidy.SETUP].drop_duplicates().itertuples(index=False, name=None)]
    for panel, group in panels:
        for setup, rows in group.groupby(tidy.SETUP, sort=False):
            samples, seconds = rows["train_samples"], rows["epoch_seconds"]
            colour, marker = colours[rows["strategy"].iloc[0]]
            label = style.setup_text(rows.iloc[0])
            if rows["train_size"].nunique() > 1:
                line = stats.linregress(samples, seconds)
                ends = np.array([0, samples.max()])
                values = line.intercept + line.slope * ends
                panel.plot(ends, values, color=colour, ls=style.dash(setup, setups))
                error = f" ± {1000 * line.stderr:.2g}" if len(rows) > 2 else ""
                label += f": {line.intercept:.2g} s + {1000 * line.slope:.3g}{error} s per 1,000"
            panel.plot(samples, seconds, marker, color=colour, ms=5, label=label)
        panel.set_xlabel("training samples")
        panel.set_ylim(bottom=0)
        panel.legend()
    figure.axes[0].set_ylabel("time per epoch (s)")
    return figure
