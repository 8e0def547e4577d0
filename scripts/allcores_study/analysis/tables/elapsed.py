"""Training time by number of cores, with published times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd

from allcores_study.analysis import style, tidy

if TYPE_CHECKING:
    from allcores_study.analysis.products import StudyFacts

TITLE = "elapsed time"
SECTION = "speed"
WHEN = "references"
ORDER = 30
CAPTION = """
Training time of whole runs by number of cores. *per 1000*: seconds per 1,000 samples, to compare
runs of different sizes. *speedup*: samples per second relative to the baseline strategy on its
fewest cores. *efficiency*: the speedup divided by the ratio of cores. *over best*: samples per
second relative to the fastest baseline with at most as many cores. Rows with the note *published
elsewhere* are the measurements of others, as published; only *per 1000* is computed from them.
"""
# Columns shown at first; a button shows the others.
COMPARED = ("setup", "cores", "per_1000", "speedup", "note")

MEASURED = [
    "cores",
    "seconds",
    "samples",
    "per_1000",
    "samples_per_second",
    "speedup",
    "efficiency",
    "over_best",
    "note",
]


def table(speed_table: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame:
    """Return one row per setup and one per reference; CAPTION explains the columns.

    Args:
        facts: with references [{model, label, seconds, images, cores if known}, ...].
    """
    setups = [style.setup_text(row) for _, row in speed_table.iterrows()]
    measured = speed_table.assign(setup=setups)
    columns = {"label": "setup", "images": "samples"}
    published = pd.DataFrame(of_times(facts.references)).rename(columns=columns)
    for frame in (measured, published):
        frame["per_1000"] = 1000 * frame["seconds"] / frame["samples"]
    published["note"] = tidy.PUBLISHED
    table = pd.concat([measured[["model", "setup", *MEASURED]], published], ignore_index=True)
    table["cores"] = table["cores"].astype("Int64")
    return table


def of_times(references: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those of facts.references that have a time, without their scores."""
    return [
        {key: value for key, value in reference.items() if key != "score"}
        for reference in references
        if "seconds" in reference
    ]
