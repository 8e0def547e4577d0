"""Plot scores on the test folds against epochs and against training time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.analysis import style, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts

TITLE = "{curve} by epoch and time"
CAPTION = """
{curve} on the test folds by epoch and by training time, without evaluation. Line: the mean over
folds and seeds. Band: their range. Colour: the strategy. Line style: the number of workers.
"""

AXES = {"epoch": "epoch", "elapsed": "training time (s)"}


def figure(epochs: pd.DataFrame, facts: StudyFacts) -> Figure | None:
    """Draw two panels per dataset, model and schedule: the mean of repeats, the range as a band."""
    scored = epochs[epochs[facts.curve.name].notna()]
    if scored.empty or scored.groupby(tidy.RUN).size().max() < 2:
        return None  # only the last epoch of each run
    epochs = tidy.with_elapsed(epochs)
    colours = style.strategies(epochs["strategy"])
    workers = sorted(epochs["workers"].unique())
    more = ["dataset", "schedule", "train_size"]
    figure, pairs = style.panels_of(epochs, more, each=2, width=4.8, columns=2)
    for pair, group in pairs:
        for _, repeats in group.groupby(tidy.SETTINGS, sort=False):
            first = repeats.iloc[0]
            colour, marker = colours[first["strategy"]]
            line = tidy.learning_curve(repeats, facts.curve.name)
            for panel, x in zip(pair, AXES, strict=True):
                style.band(
                    *(panel, line[x], line, facts.curve.scale),
                    color=colour,
                    marker=marker,
                    ms=4,
                    ls=style.dash(first["workers"], workers),
                    label=style.setup_text(first),
                )
        for panel, label in zip(pair, AXES.values(), strict=True):
            panel.set_xlabel(label)
        pair[0].xaxis.get_major_locator().set_params(integer=True)
        pair[0].set_ylabel(f"{facts.curve.axis} on the test folds")
    style.legend_below(figure)
    return figure
