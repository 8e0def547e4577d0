"""Accuracy per class for every combination of settings, pooled over folds and seeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import percent

if TYPE_CHECKING:
    import pandas as pd

TITLE = "accuracy per class"
CAPTION = """
Accuracy on each class (recall) on the test folds. Each number is the share of the samples of a
class that were classified correctly, pooled over folds and seeds. There is one column per class.
"""
# Format of the columns that wording.NUMBERS does not name: those of classes.
OTHERS = percent(1)


def table(classes: pd.DataFrame) -> pd.DataFrame:
    """Return one row per combination of settings, with one column "class NAME" per class."""
    # Class names are texts, even if they look like numbers.
    classes = classes.assign(**{"class": classes["class"].astype(str)})
    sums = classes.groupby([*tidy.SETTINGS, "class"], sort=False)[["correct", "samples"]].sum()
    accuracy = (sums["correct"] / sums["samples"]).unstack("class")
    order = classes["class"].drop_duplicates()
    # With the prefix, because a class may have the name of another column.
    named = accuracy[order].add_prefix(tidy.CLASS).reset_index()
    return tidy.ordered(classes).merge(named, on=tidy.SETTINGS)


def sentences(classes: pd.DataFrame) -> Iterator[str]:
    """Yield the accuracy of always predicting the most frequent class."""
    first = classes.drop_duplicates(["dataset", "split", "class"])
    for dataset, of_dataset in first.groupby("dataset", sort=False):
        samples = of_dataset.groupby("class", sort=False)["samples"].sum()
        yield (
            f"{dataset}: always predicting {samples.idxmax()} is right for "
            f"{samples.max() / samples.sum():.1%} of the samples."
        )
