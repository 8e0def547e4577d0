"""The columns of a table in numbers, as the first table of a medical paper has them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import WHOLE

if TYPE_CHECKING:
    from allcores_study.data.storage import Dataset

TITLE = "the data"
CAPTION = """
Columns of the data before scaling and before missing values are replaced, over all samples and
over those of each class, if there are at most 10. Numbers: mean (standard deviation). Categories:
count (share of the known values). *known*, *missing*: number of samples with a value and without
one. Of more columns and categories, about the first 100 are shown.
"""
MOST_CLASSES, MOST_ROWS = 10, 100
NUMBERS = dict.fromkeys(("known", "missing"), WHOLE)
FRACTIONS = 999.5  # smaller numbers are shown with three digits


def table(datasets: dict[str, Dataset]) -> pd.DataFrame:
    """Return one row per column of numbers, and one per category of the other columns."""
    rows = [
        {"dataset": label} | row
        for label, data in datasets.items()
        if data.columns
        for row in _rows(data)
    ]
    return pd.DataFrame(rows, columns=None if rows else ["dataset", "column"])


def _rows(data: Dataset) -> Iterator[dict[str, Any]]:
    parts = {"all": np.full(len(data.targets), True)}
    classes = data.facts.classes
    if classes and len(classes) <= MOST_CLASSES:
        parts |= {f"{tidy.CLASS}{name}": data.targets == k for k, name in enumerate(classes)}
    for name, category, known, describe in _variables(data):
        counts = {"known": known.sum(), "missing": (~known).sum()}
        described = {title: describe(part & known) for title, part in parts.items()}
        yield {"column": name, "category": category} | counts | described


def _variables(
    data: Dataset,
) -> Iterator[tuple[str, str | None, np.ndarray, Callable[[np.ndarray], str]]]:
    """Yield (column, category, which samples have a value, function that describes samples).

    The first one is the number of samples.
    """
    everything = np.full(len(data.targets), True)
    yield "samples", None, everything, lambda part: _counted(part, everything)
    places: dict[str, list[int]] = {}
    for place, column in enumerate(data.columns):
        places.setdefault(column["name"], []).append(place)
    rows = 0
    for name, own in places.items():
        if rows >= MOST_ROWS:
            return
        rows += len(own)
        values, categories = data.inputs[:, own], [data.columns[at]["category"] for at in own]
        if categories == [None]:
            numbers = values[:, 0].astype(float)
            yield name, None, ~np.isnan(numbers), functools.partial(_averaged, numbers)
            continue
        has_category = values == 1
        known = has_category.any(axis=1)
        for category, indicated in zip(categories, has_category.T, strict=True):
            yield name, category, known, functools.partial(_counted, indicated)


def _counted(indicated: np.ndarray, among: np.ndarray) -> str:
    """Return how many of some samples are indicated, in words: "12 (40.0%)"."""
    count, whole = (indicated & among).sum(), among.sum()
    return f"{count:,} ({count / whole:.1%})" if whole else "0"


def _averaged(numbers: np.ndarray, among: np.ndarray) -> str:
    """Return the mean and the standard deviation over some samples: "52.1 (9.8)"."""
    values = numbers[among]
    if not len(values):
        return ""
    spread = f" ({_text(values.std(ddof=1))})" if len(values) > 1 else ""
    return _text(values.mean()) + spread


def _text(number: float) -> str:
    digits = f"{number:#.3g}".removesuffix(".")
    return digits if abs(number) < FRACTIONS else f"{number:,.0f}"
