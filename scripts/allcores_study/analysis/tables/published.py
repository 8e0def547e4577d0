"""Published times and scores beside those measured here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from allcores_study.analysis import comparison, style, tidy
from allcores_study.analysis.wording import seconds
from allcores_study.config.grid import NO_SCHEDULE

if TYPE_CHECKING:
    from allcores_study.analysis.products import StudyFacts

TITLE = "published elsewhere"
CAPTION = """
Published times and scores beside those of the same models in this study. *source*: schedule and
setup, or where it was published. *seconds per 1000*: training time for 1,000 samples. *score*: the
mean {metric} over folds and seeds, or as published. *low 95*, *high 95*: its 95 % interval, if
there are several runs. The published scores may come from other splits, seeds and scaling.
"""
NUMBERS = {"seconds_per_1000": seconds(2)}
COLUMNS = ["dataset", "model", "source", "cores", "seconds_per_1000", "score", "low_95", "high_95"]


def table(runs: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame | None:
    """Return one row per published result, and one per combination of settings of its model."""
    rows = [row for reference in facts.references for row in _published(reference)]
    models = [reference["model"] for reference in facts.references]
    own = runs[runs["model"].isin(models)]
    if not rows or own.empty:
        return None
    for _, repeats in own.groupby(tidy.SETTINGS, sort=False):
        first = repeats.iloc[0]
        low, high = comparison.interval(repeats, facts.metric)
        per_sample = repeats["training_seconds"] / (repeats["train_samples"] * repeats["epochs"])
        rows.append(
            {
                "dataset": first["dataset"],
                "model": first["model"],
                "source": ", ".join(_setting(first, own)),
                "cores": first["cores"],
                "seconds_per_1000": 1000 * per_sample.median(),
                **{"score": comparison.mean(repeats), "low_95": low, "high_95": high},
            }
        )
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["cores"] = table["cores"].astype("Int64")
    return table.sort_values("model", key=lambda names: names.map(models.index), kind="stable")


def _setting(first: pd.Series, own: pd.DataFrame) -> Iterator[str]:
    """Yield what tells a row from the others."""
    if first["schedule"] != NO_SCHEDULE.label:
        yield first["schedule"]
    yield style.setup_text(first)
    if own["train_size"].nunique() > 1:
        yield f"{first['train_size']} samples"


def _published(reference: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the row of a published result."""
    per_sample = reference["seconds"] / reference["images"] if "seconds" in reference else None
    yield {
        "model": reference["model"],
        "source": f"{reference['label']}, published elsewhere",
        "cores": reference.get("cores"),
        "seconds_per_1000": None if per_sample is None else 1000 * per_sample,
        "score": reference.get("score"),
    }


def of_times(references: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those of facts.references that have a time."""
    return [reference for reference in references if "seconds" in reference]
