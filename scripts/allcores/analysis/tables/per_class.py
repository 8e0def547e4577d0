"""Accuracy per class of every cell of a study, pooled over folds and seeds."""

from allcores.analysis import tidy
from allcores.analysis.html_table import WHOLE, percent

TITLE = "accuracy per class"
SECTION = "{metric}"
WHEN = "classes"
ORDER = 62
CAPTION = """
Share of each class's held-out samples that was classified correctly (recall), pooled over folds
and seeds; one column per class.
"""


def table(classes):
    """One row per cell, one column "class NAME" per class, from one row per run and class."""
    # Class names are texts, also where they look like numbers.
    classes = classes.assign(**{"class": classes["class"].astype(str)})
    sums = classes.groupby([*tidy.CELL, "class"], sort=False)[["correct", "samples"]].sum()
    accuracy = (sums["correct"] / sums["samples"]).unstack("class")
    order = classes["class"].drop_duplicates()
    # A class may be called like one of the other columns.
    named = accuracy[order].add_prefix(tidy.CLASS).reset_index()
    return tidy.ordered(classes).merge(named, on=tidy.CELL)


def formats(table):
    """Column -> html_table.Number."""
    names = table.columns.difference(tidy.CELL, sort=False)
    return {"nodes": WHOLE, "workers": WHOLE} | dict.fromkeys(names, percent(1))
