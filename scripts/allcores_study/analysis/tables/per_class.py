"""Accuracy per class for every combination of settings, pooled over folds and seeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import percent

if TYPE_CHECKING:
    import pandas as pd

TITLE = "accuracy per class"
SECTION = "{metric}"
WHEN = "classes"
ORDER = 62
CAPTION = """
Share of each class's held-out samples that was classified correctly (recall), pooled over folds
and seeds; one column per class.
"""
# How other numbers than those of wording.NUMBERS are written: the columns of classes.
OTHERS = percent(1)


def table(classes: pd.DataFrame) -> pd.DataFrame:
    """One row per combination of settings, one column "class NAME" per class."""
    # Class names are texts, even if they look like numbers.
    classes = classes.assign(**{"class": classes["class"].astype(str)})
    sums = classes.groupby([*tidy.SETTINGS, "class"], sort=False)[["correct", "samples"]].sum()
    accuracy = (sums["correct"] / sums["samples"]).unstack("class")
    order = classes["class"].drop_duplicates()
    # A class may have the name of another column.
    named = accuracy[order].add_prefix(tidy.CLASS).reset_index()
    return tidy.ordered(classes).merge(named, on=tidy.SETTINGS)


def sentences(classes: pd.DataFrame) -> Iterator[str]:
    """The accuracy of always predicting the most frequent class."""
    first = classes.drop_duplicates(["dataset", "split", "class"])
    for dataset, of_dataset in first.groupby("dataset", sort=False):
        samples = of_dataset.groupby("class", sort=False)["samples"].sum()
        yield (
            f"{dataset}: always predicting {samples.idxmax()} is right for "
            f"{samples.max() / samples.sum():.1%} of the samples."
        )
