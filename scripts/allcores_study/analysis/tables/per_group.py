"""The score on each group of samples, such as a hospital, for every combination of settings."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from allcores_study.analysis import metrics, tidy
from allcores_study.analysis.wording import count, number

if TYPE_CHECKING:
    from allcores_study.analysis.metrics import Metric
    from allcores_study.analysis.products import StudyFacts

TITLE = "{metric} per group"
CAPTION = """
Score ({metric}) on each group of samples on the test folds: the mean over the runs that have the
group in their test fold. There is one column per group. A cell is empty if the metric is undefined
for the group, for example because it has samples of one class only. Of more than 20 groups, the 20
with the most samples are shown. The column ``group`` of ``predictions.parquet`` names all groups.
"""
MOST = 20  # of more, the best and the worst would be those with too few samples to tell
# Format of the columns that wording.NUMBERS does not name: those of groups.
OTHERS = number


def table(predictions: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame | None:
    """Return one row per combination of settings, with one column "group NAME" per group."""
    if "group" not in predictions:
        return None
    shown = predictions[predictions["group"].isin(_largest(predictions))]
    rows = [
        dict(zip(tidy.SETTINGS, settings, strict=True))
        | {"group": group, "score": _score(of_group, facts.metric)}
        for (*settings, _, _, group), of_group in shown.groupby([*tidy.RUN, "group"], sort=False)
    ]
    means = pd.DataFrame(rows).groupby([*tidy.SETTINGS, "group"], sort=False)["score"].mean()
    # With the prefix, because a group may have the name of another column.
    columns = sorted(means.index.unique("group"), key=_place)
    named = means.unstack("group")[columns].add_prefix(tidy.GROUP).reset_index()
    return tidy.ordered(shown).merge(named, on=tidy.SETTINGS)


def sentences(
    per_group_table: pd.DataFrame, predictions: pd.DataFrame, facts: StudyFacts
) -> Iterator[str]:
    """Yield the groups with the lowest and the highest mean over all settings."""
    for dataset, of_dataset in per_group_table.groupby("dataset", sort=False):
        columns = [name for name in of_dataset if name.startswith(tidy.GROUP)]
        means = of_dataset[columns].mean().dropna().rename(lambda name: name[len(tidy.GROUP) :])
        if len(means) < 2:
            continue
        sizes = _sizes(predictions[predictions["dataset"] == dataset])
        which = f"the {MOST} largest groups" if len(sizes) > MOST else f"the {len(sizes)} groups"
        if len(means) < min(MOST, len(sizes)):  # the others have samples of one class only
            which = f"the {len(means)} groups that have one, of {len(sizes)}"
        low, high = (
            f"{facts.metric.text(means[name], 1)} ({name}, {count(sizes[name], 'sample')})"
            for name in (means.idxmin(), means.idxmax())
        )
        yield (
            f"{dataset}: {facts.metric} on {which}, averaged over the models, ranges from {low} "
            f"to {high}."
        )


def _place(group: str) -> tuple[int, str]:
    """Return the key by which groups are sorted: numbers by their value, then names."""
    return (len(group), group) if group.isdigit() else (sys.maxsize, group)


def _sizes(predictions: pd.DataFrame) -> pd.Series:
    """Return the number of samples of each group, the largest first."""
    sizes = predictions.drop_duplicates(["dataset", "sample"]).groupby("group").size()
    return sizes.sort_values(ascending=False, kind="stable")


def _largest(predictions: pd.DataFrame) -> list[str]:
    """Return the groups to show of each dataset."""
    of_each = [_sizes(rows)[:MOST] for _, rows in predictions.groupby("dataset", sort=False)]
    return [group for sizes in of_each for group in sizes.index]


def _score(predictions: pd.DataFrame, metric: Metric) -> float:
    try:
        return metric.measure(*metrics.arguments_of(predictions))
    except ValueError:  # a user's metric may refuse samples of one class
        return math.nan
