"""Epochs and seconds of training until a run reaches an accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import seconds

if TYPE_CHECKING:
    import pandas as pd

    from allcores_study.analysis.products import StudyFacts

TITLE = "epochs and time to an accuracy"
CAPTION = """
Epochs and training time until the accuracy on the test fold first reaches {target:.1%}. *epochs*,
*seconds*: medians over the runs that reach it; the time is without evaluation. *reached*: how many
runs do. *fastest*, *slowest*: the range of the seconds. The test fold itself decides when the count
stops, so this measures how fast a model trains, not how well it does on new data.
"""
# The columns that the page shows; the CSV has all.
COMPARED = ("reached", "epochs", "seconds")
# Columns that this table formats differently from wording.NUMBERS.
NUMBERS = dict.fromkeys(("fastest", "slowest"), seconds(2))


def reached(epochs: pd.DataFrame, target: float) -> pd.DataFrame:
    """Return one row per run: the first epoch that reaches the target, and the seconds until then.

    The accuracy is that on the test fold. Both are empty if no epoch reaches the target.
    """
    epochs = tidy.with_elapsed(epochs)
    first = epochs[epochs["accuracy"] >= target].drop_duplicates(tidy.RUN)
    all_runs = epochs[tidy.RUN].drop_duplicates()
    return all_runs.merge(first[[*tidy.RUN, "epoch", "elapsed"]], how="left", on=tidy.RUN)


def table(epochs: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame | None:
    """Return one row per combination of settings: medians over runs that reached the target."""
    if facts.target is None:
        return None
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
