"""Plot held-out scores: every run as a dot, and the mean of repeats with its 95 % interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allcores_study.analysis import comparison, style, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import Facts

TITLE = "{metric}"
SECTION = "{metric}"
WHEN = "learnable"
ORDER = 56
LEADING = 5
CAPTION = """
Held-out {metric}. Faint dots are single runs (folds and seeds); the marker is their mean and the
bar its 95 % interval, corrected for folds that share training samples. Runs that diverged are
counted in the label, not averaged. Colour and marker tell the strategies apart.
"""


def figure(runs: pd.DataFrame, facts: Facts) -> Figure:
    """One panel per dataset and model; a row per schedule and setup."""
    colours = style.strategies(runs["strategy"])
    setups = runs.drop_duplicates(tidy.SETTINGS)
    rows = setups.groupby(["model", "dataset", "train_size"]).size().max()
    options = {"height": 0.9 + 0.36 * rows, "sharex": runs["dataset"].nunique() == 1}
    figure, panels = style.panels_of(runs, width=4.4, columns=3, **options)
    for panel, group in panels:
        labels = []
        for row, (_, repeats) in enumerate(group.groupby(tidy.SETTINGS, sort=False)):
            colour, marker = colours[repeats["strategy"].iloc[0]]
            scores = facts.metric.scale * repeats["score"].to_numpy()
            mean = np.nanmean(scores) if not np.isnan(scores).all() else np.nan
            ends = facts.metric.scale * np.array(comparison.interval(repeats, facts.metric))
            panel.plot(scores, np.full(len(scores), row), "o", color=colour, alpha=0.3, ms=4)
            panel.errorbar(
                mean,
                row,
                xerr=[[mean - ends[0]], [ends[1] - mean]],
                fmt=marker,
                color=colour,
                capsize=3,
                ms=7,
                mec="white",
            )
            diverged = repeats["diverged"].count()
            mark = f" ({diverged} of {len(repeats)} diverged)" if diverged else ""
            schedule, setup = repeats["schedule"].iloc[0], style.setup_text(repeats.iloc[0])
            labels.append(f"{schedule}: {setup}{mark}")
        panel.set_xlabel(f"held-out {facts.metric.axis}")
        style.name_rows(panel, labels)
    return figure
