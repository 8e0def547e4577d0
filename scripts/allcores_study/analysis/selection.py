"""Nested cross-validation: choose candidates by scores on the training set only."""

from __future__ import annotations

import json
import math
import statistics
from typing import TYPE_CHECKING, Any

import pandas as pd

from allcores_study.analysis import metrics, suggestions, tidy
from allcores_study.config import ranges, schema, sweeps
from allcores_study.records import run_files
from allcores_study.records.identity import Record

if TYPE_CHECKING:
    from allcores_study.analysis.metrics import Metric
    from allcores_study.analysis.study import Study
    from allcores_study.config.candidates import Selection
    from allcores_study.records.run_files import RunFolder, StoredRun

# Prefix of columns with the values of a swept key.
SWEPT_COLUMN = "swept_"


def choose(
    inner: dict[str, list[RunFolder | StoredRun]],
    keeps: int = 1,
    rung: int = 1,
    metric: Metric = metrics.ACCURACY,
) -> dict[str, Any]:
    """Choose the candidates with the best mean score over inner folds, the first of equal ones.

    This is scikit-learn's GridSearchCV inside each outer fold: the test fold is not used.

    Args:
        inner: candidate -> files of each of its inner runs.
        keeps: how many to choose; candidates that diverged are never chosen.
        rung: of successive halving, from 1.
        metric: of the scores.

    Returns:
        {"kept": candidates, the best first, "candidates": {candidate: {"scores": [...], "mean":
        their mean, or None if a run diverged, "epochs": how many its runs trained, "rung",
        "core_seconds": CPU time of its inner runs, with what they resumed}}}

    Raises:
        ValueError: every candidate diverged.
    """
    if len(inner) == 1:  # nothing to choose from
        (only,) = inner
        return {"kept": [only], "candidates": {}}
    candidates = scored(inner, rung, metric)
    return {"kept": _best(candidates, metric, keeps), "candidates": candidates}


def choose_in_search(
    choice: Selection,
    inner: dict[str, list[RunFolder | StoredRun]],
    values: dict[str, dict[str, Any]],
    earlier: dict[str, dict[str, Any]],
    metric: Metric,
) -> dict[str, Any]:
    """Choose the candidates that a search keeps, or suggest new ones at the end of a round.

    Args:
        inner: as in choose().
        values: label of each candidate of the round -> {name: value}.
        earlier: label -> entry of the candidates of all earlier selections.
        metric: of the scores.

    Returns:
        As choose(), with the "values" of each candidate and whether it was "pruned", that is not
        trained to the end. At the end of a round, "suggested" is label -> values of the candidates
        of the next round, which are "kept".

    Raises:
        ValueError: every candidate diverged or was pruned, and no round is left.
    """
    of_round = scored(inner, choice.rung, metric)
    is_end_of_round = choice.next_inner is None or bool(choice.suggests)
    best = best_first(of_round, metric)[: choice.keeps]
    for label, entry in of_round.items():
        entry["values"] = values[label]
        entry["pruned"] = not is_end_of_round and label not in best
    candidates = earlier | of_round
    if not is_end_of_round:
        return {"kept": best, "candidates": candidates}
    if choice.suggests:
        assert choice.search is not None
        new = suggestions.suggest(
            choice.search, candidates.values(), metric.sign, len(choice.suggests)
        )
        suggested = dict(zip(choice.suggests, new, strict=True))
        return {"kept": list(suggested), "suggested": suggested, "candidates": candidates}
    whole = {label: entry for label, entry in candidates.items() if not entry["pruned"]}
    return {"kept": _best(whole, metric, 1), "candidates": candidates}


def scored(
    inner: dict[str, list[RunFolder | StoredRun]], rung: int, metric: Metric
) -> dict[str, dict[str, Any]]:
    """Return candidate -> its entry, as in choose()."""
    candidates = {}
    for label, all_files in inner.items():
        runs = [run_files.metrics(files) for files in all_files]
        pairs = zip(runs, all_files, strict=True)
        scores = [metrics.measured(run, files, [metric])[metric.name] for run, files in pairs]
        candidates[label] = {
            "scores": [None if math.isnan(score) else score for score in scores],
            "mean": None if any(map(math.isnan, scores)) else statistics.fmean(scores),
            "epochs": max(len(run["epochs"]) for run in runs),
            "rung": rung,
            "core_seconds": math.fsum(run["cpu_seconds"] for run in runs),
        }
    return candidates


def _best(candidates: dict[str, dict[str, Any]], metric: Metric, count: int) -> list[str]:
    best = best_first(candidates, metric)[:count]
    if not best:
        raise ValueError(f"all candidates diverged, or have no {metric}: {', '.join(candidates)}")
    return best


def best_first(candidates: dict[str, dict[str, Any]], metric: Metric) -> list[str]:
    """Return the candidates that have a score, the best first; ties keep their order."""
    means = {label: entry["mean"] for label, entry in candidates.items()}
    finite = [label for label, mean in means.items() if mean is not None]
    return sorted(finite, key=lambda label: -metric.sign * means[label])


def candidates(
    study: Study, all_metrics: list[dict[str, Any]], measured: list[dict[str, float]]
) -> pd.DataFrame:
    """Return one row per candidate of a sweep and run, or choice if the study selects.

    score: the mean over the inner folds if the study selects, else the score on the test fold.
    chosen: whether it was chosen; empty if the study does not select. pruned: whether it was not
    trained to the end. trial: for a search, its number within a choice, in the order in which
    candidates were drawn or suggested. swept_KEY: its value of each key.

    Args:
        measured: see tidy.runs().
    """
    swept = study.config.get(schema.SWEPT, {})
    rows = []
    for selection in study.selections:
        choice = Record.read(study.folder.selection(selection.path)).content
        last_rung = max((entry["rung"] for entry in choice["candidates"].values()), default=1)
        identity = tidy.identify(
            {
                "settings": json.loads(
                    study.table.runs[str(study.folder.chosen_path(selection))].to_json()
                )
            }
        )
        for trial, (label, entry) in enumerate(choice["candidates"].items(), 1):
            candidate, values = label, swept[label]["values"]
            if selection.search:  # a label has different values in each fold
                values = entry["values"]
                candidate, _ = sweeps.candidate(study.config, selection.family, values)
                keys = ranges.short_names(list(values))
                values = dict(zip(keys, values.values(), strict=True))
            rows.append(
                identity
                | {"model": selection.family, "candidate": candidate, "score": entry["mean"]}
                | {key: entry[key] for key in ("core_seconds", "epochs", "rung")}
                | {"pruned": entry.get("pruned", entry["rung"] < last_rung)}
                | {"trial": trial if selection.search else None}
                | {"chosen": label == choice["kept"][0], "inner_folds": len(entry["scores"])}
                | _values(values)
            )
    for run, measures in [] if study.selections else zip(all_metrics, measured, strict=True):
        identity = tidy.identify(run)
        label = identity["model"]
        if label in swept:
            score = next(iter(measures.values()))
            rows.append(
                identity
                | {"model": swept[label]["family"], "candidate": label, "score": score}
                | {"core_seconds": run["cpu_seconds"], "chosen": None, "pruned": False}
                | {"epochs": len(run["epochs"]), "rung": 1}
                | _values(swept[label]["values"])
            )
    names = [*tidy.RUN, "candidate", "score", "core_seconds", "epochs", "rung", "pruned", "chosen"]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=names)


def _values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of swept values; they are empty for models without the key."""
    return {
        f"{SWEPT_COLUMN}{key}": str(value) if isinstance(value, list | None) else value
        for key, value in values.items()
    }


def by_family(study: Study, frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the frames with the swept model in place of its candidate, if the study selects."""
    if not study.selections:
        return frames
    swept = study.config.get(schema.SWEPT, {})
    family = {label: entry["family"] for label, entry in swept.items()}
    return {
        name: frame.assign(model=frame["model"].replace(family)) if "model" in frame else frame
        for name, frame in frames.items()
    }
