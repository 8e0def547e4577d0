"""The candidates of sweeps with their scores, and what was chosen between them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd

from allcores_study.analysis import tidy
from allcores_study.config import settings

if TYPE_CHECKING:
    from allcores_study.analysis.study import Study

# Prefix of columns with the values of a swept key.
SWEPT_COLUMN = "swept_"


def candidates(
    study: Study, all_metrics: list[dict[str, Any]], measured: list[dict[str, float]]
) -> pd.DataFrame:
    """Return one row per candidate of a sweep and run, or choice if the study selects.

    score: the mean over the inner folds if the study selects, else the score on the test fold.
    chosen: whether it was chosen; empty if the study does not select. swept_KEY: its value of each
    key.

    Args:
        measured: see tidy.runs().
    """
    swept = study.config.get(settings.SWEPT, {})
    rows = []
    for chosen in study.runs if study.selects else ():
        choice: dict[str, Any] = {}
        if chosen.path in study.table.selections:
            choice = study.folder.choice_made(chosen.path)
        identity = tidy.identify({"settings": json.loads(chosen.to_json())})
        for label, entry in choice.get("candidates", {}).items():
            rows.append(
                identity
                | {"candidate": label, "score": entry["mean"]}
                | {key: entry[key] for key in ("core_seconds", "epochs")}
                | {"chosen": label == choice["chosen"], "inner_folds": len(entry["scores"])}
                | _values(swept[label]["values"])
            )
    for run, measures in [] if study.selects else zip(all_metrics, measured, strict=True):
        identity = tidy.identify(run)
        label = identity["model"]
        if label in swept:
            score = next(iter(measures.values()))
            rows.append(
                identity
                | {"model": swept[label]["family"], "candidate": label, "score": score}
                | {"core_seconds": run["cpu_seconds"], "chosen": None}
                | {"epochs": len(run["epochs"])}
                | _values(swept[label]["values"])
            )
    names = [*tidy.RUN, "candidate", "score", "core_seconds", "epochs", "chosen"]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=names)


def _values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of swept values; they are empty for models without the key."""
    return {
        f"{SWEPT_COLUMN}{key}": str(value) if isinstance(value, list | None) else value
        for key, value in values.items()
    }
