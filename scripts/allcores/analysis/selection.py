"""Nested cross-validation: choose candidates by scores on the training part only."""

import json
import math
import statistics

import pandas as pd

from allcores.analysis import metrics, tidy
from allcores.study import run_files, schema
from allcores.study.identity import Record

# Prefix of the name of each swept key where those are columns.
SWEPT_COLUMN = "swept_"


def choose(inner, keeps=1, rung=1, metric=metrics.ACCURACY):
    """The candidates with the best mean score over inner folds, the first of equal ones.

    As in scikit-learn's GridSearchCV, inside each outer fold: the held-out part is not used.

    Args:
        inner: candidate -> run_files.RunFolder or StoredRun of each of its inner runs.
        keeps: how many to choose; candidates that diverged are never chosen.
        rung: of successive halving, from 1.
        metric: metrics.Metric of the scores.

    Returns:
        {"kept": candidates, the best one first, "candidates": {candidate: {"scores": [...],
        "mean": their mean, or None if a run diverged, "epochs": how many its runs trained, "rung",
        "core_seconds": CPU time of its inner runs, with what they have resumed}}}

    Raises:
        ValueError: every candidate diverged.
    """
    if len(inner) == 1:  # nothing to choose from
        (only,) = inner
        return {"kept": [only], "candidates": {}}
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
    means = {label: entry["mean"] for label, entry in candidates.items()}
    finite = [label for label, mean in means.items() if mean is not None]
    if not finite:
        raise ValueError(f"all candidates diverged, or have no {metric}: {', '.join(candidates)}")
    best_first = sorted(finite, key=lambda label: -metric.sign * means[label])
    return {"kept": best_first[:keeps], "candidates": candidates}


def candidates(study, all_metrics, measured):
    """One row per run, or per choice, and candidate of a sweep: its values and its score.

    score: where the study selects, the mean over the inner folds; else the held-out score. chosen:
    whether it was chosen; empty if the study does not select. A column swept_KEY holds the values
    of each key.

    Args:
        study: a study.Study.
        measured: see tidy.runs().
    """
    swept = study.config.get(schema.SWEPT, {})
    rows = []
    for selection in study.selections:
        choice = Record.read(study.folder.selection(selection.path)).content
        identity = tidy.identify(
            {
                "settings": json.loads(
                    study.table.runs[study.folder.chosen_path(selection)].to_json()
                )
            }
        )
        for label, entry in choice["candidates"].items():
            rows.append(
                identity
                | {"model": selection.family, "candidate": label, "score": entry["mean"]}
                | {key: entry[key] for key in ("core_seconds", "epochs", "rung")}
                | {"chosen": label == choice["kept"][0], "inner_folds": len(entry["scores"])}
                | _values(swept, label)
            )
    for run, measures in [] if study.selections else zip(all_metrics, measured, strict=True):
        identity = tidy.identify(run)
        label = identity["model"]
        if label in swept:
            score = next(iter(measures.values()))
            rows.append(
                identity
                | {"model": swept[label]["family"], "candidate": label, "score": score}
                | {"core_seconds": run["cpu_seconds"], "chosen": None}
                | {"epochs": len(run["epochs"]), "rung": 1}
                | _values(swept, label)
            )
    names = [*tidy.RUN, "candidate", "score", "core_seconds", "epochs", "rung", "chosen"]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=names)


def _values(swept, label):
    values = swept.get(label, {"values": {}})["values"].items()
    return {
        f"{SWEPT_COLUMN}{key}": str(value) if isinstance(value, list) else value
        for key, value in values
    }


def by_family(study, frames):
    """The frames of a study, with the family in place of the candidate if it selects."""
    if not study.selections:
        return frames
    swept = study.config.get(schema.SWEPT, {})
    family = {label: entry["family"] for label, entry in swept.items()}
    return {
        name: frame.assign(model=frame["model"].replace(family)) if "model" in frame else frame
        for name, frame in frames.items()
    }
