"""Elapsed training time by number of cores, beside times that others have published."""

import pandas as pd

from allcores.analysis import style, tidy
from allcores.analysis.html_table import TIMES, WHOLE, Number, percent, seconds
from allcores.analysis.words.wording import mark, on_cores

TITLE = "elapsed time"
SECTION = "speed"
WHEN = "references"
ORDER = 30
CAPTION = """
Training time of whole runs by number of cores; *per 1000*: seconds per 1,000 images, by which
runs of different sizes compare. **speedup**: images per second over those of the baseline
strategy with its fewest cores; *efficiency*: that divided by the ratio of cores. **over best**:
over the most that the baseline strategy reaches with at most as many cores. Rows noted
*published elsewhere* are others' measurements, given as they stand; they were not made here,
and only *per 1000* is computed from them.
"""
# What one compares; the other columns are shown on request.
COMPARED = ("layout", "cores", "per_1000", "speedup", "note")

MEASURED = [
    "cores",
    "seconds",
    "images",
    "per_1000",
    "images_per_second",
    "speedup",
    "efficiency",
    "over_best",
    "note",
]


def table(speed_table, facts):
    """One row per way of using the cores and one per reference.

    per_1000 is seconds of training per 1,000 images, by which runs of different sizes compare.

    Args:
        facts: whose references are as the config has them: [{model, label, seconds, images, cores
            if known}, ...].
    """
    ours = speed_table.assign(layout=[style.layout(row) for _, row in speed_table.iterrows()])
    theirs = pd.DataFrame(facts.references).rename(columns={"label": "layout"})
    ours["per_1000"], theirs["per_1000"] = (
        1000 * table["seconds"] / table["images"] for table in (ours, theirs)
    )
    theirs["note"] = tidy.PUBLISHED
    table = pd.concat([ours[["model", "layout", *MEASURED]], theirs], ignore_index=True)
    table["cores"] = table["cores"].astype("Int64")
    return table


def sentences(elapsed_table, facts):
    """Times measured, and beside them those that others have published."""
    for model, group in elapsed_table.groupby("model", sort=False):
        published = group["note"] == tidy.PUBLISHED
        group = group.assign(note=group["note"].mask(published))
        measured, others = (
            "; ".join(
                f"{row['layout']}{on_cores(row['cores'])}: {row['per_1000']:,.1f} s{mark(row)}"
                for _, row in rows.iterrows()
            )
            for rows in (group[~published], group[published])
        )
        yield f"{model}, training time per 1,000 images: {measured}."
        if others:
            yield f"{model}, published elsewhere, per 1,000 images: {others}."


def formats(table):
    """Column -> html_table.Number."""
    written = dict.fromkeys(("cores", "images"), WHOLE)
    written |= {"images_per_second": Number("{:,.1f}", "images/s")}
    written |= dict.fromkeys(("seconds", "per_1000"), seconds(1))
    return written | dict.fromkeys(("speedup", "over_best"), TIMES) | {"efficiency": percent(0)}
