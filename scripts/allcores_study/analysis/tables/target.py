"""After how many epochs, and how many seconds of training, a run reaches an accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import seconds

if TYPE_CHECKING:
    import pandas as pd

    from allcores_study.analysis.products import Facts

TITLE = "epochs and time to an accuracy"
SECTION = "{metric}"
WHEN = "target_accuracy"
ORDER = 40
CAPTION = """
Epochs, and seconds of training (without evaluation), until the held-out accuracy first reaches
{target:.1%}: medians over the runs that reach it. *reached*: how many do. *fastest*, *slowest*: the
range of the seconds. As the held-out accuracy itself decides when the count stops, this says how
fast a model trains, not how well it would do on new data.
"""
# Columns to compare, shown at first; the others are shown on request.
COMPARED = ("reached", "epochs", "seconds")
# Columns of this table that are written otherwise than those of wording.NUMBERS.
NUMBERS = dict.fromkeys(("fastest", "slowest"), seconds(2))


def reached(epochs: pd.DataFrame, target: float) -> pd.DataFrame:
    """One row per run: the first epoch with at least that held-out accuracy, and the seconds of
    training until its end; both are empty if there is none."""
    epochs = tidy.with_elapsed(epochs)
    first = epochs[epochs["accuracy"] >= target].drop_duplicates(tidy.RUN)
    all_runs = epochs[tidy.RUN].drop_duplicates()
    return all_runs.merge(first[[*tidy.RUN, "epoch", "elapsed"]], how="left", on=tidy.RUN)


def table(epochs: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    """One row per combination of settings: medians over the runs that reached the target."""
    assert facts.target is not None  # see WHEN
    return (
        reached(epochs, facts.target)
        .groupby(tidy.SETTINGS, sort=False)
        .agg(
            runs=("seed", "size"),
            reached=("epoch", "count"),
            epochs=("epoch", "median"),
            seconds=("elapsed", "median"),
            fastest=("elapsed", "min"),
            slowest=("elapsed", "max"),
        )
        .reset_index()
    )
