"""Nested cross-validation: which candidate is chosen, by scores on the training part only."""

import json
import math
import statistics
from pathlib import Path

import pandas as pd

from allcores.analysis import metrics, tidy
from allcores.files import read_json
from allcores.study import grid

# Before the name of each key that is swept over, where those are columns.
SWEPT = "swept_"


def choose(inner, keeps=1, rung=1, metric=metrics.ACCURACY):
    """The candidates with the best mean score over inner folds, the first of equal ones.

    As scikit-learn's GridSearchCV, inside of each outer fold: the held-out part has no say.

    Args:
        inner: candidate -> folders of its inner runs.
        keeps: how many to choose; of those that diverged none is.
        rung: of successive halving, from 1.
        metric: metrics.Metric, of the scores.

    Returns:
        {"kept": candidates, the best one first, "candidates": {candidate: {"scores": [...],
        "mean": their mean; None: a run diverged, "epochs": that its runs trained, "rung",
        "core_seconds": of its inner runs, from their first epoch}}}

    Raises:
        ValueError: every candidate diverged.
    """
    if len(inner) == 1:  # nothing to choose from
        (only,) = inner
        return {"kept": [only], "candidates": {}}
    candidates = {}
    for label, folders in inner.items():
        runs = [read_json(Path(folder, "metrics.json")) for folder in folders]
        places = zip(runs, folders, strict=True)
        scores = [metrics.measured(*each, [metric])[metric.name] for each in places]
        candidates[label] = {
            "scores": [None if math.isnan(score) else score for score in scores],
            "mean": None if any(map(math.isnan, scores)) else statistics.fmean(scores),
            "epochs": max(len(run["epochs"]) for run in runs),
            "rung": rung,
            "core_seconds": math.fsum(run["cpu_seconds"] for run in runs),
        }
    sound = {label: found for label, found in candidates.items() if found["mean"] is not None}
    if not sound:
        raise ValueError(f"all candidates diverged, or have no {metric}: {', '.join(candidates)}")
    best_first = sorted(sound, key=lambda label: -metric.sign * sound[label]["mean"])
    return {"kept": best_first[:keeps], "candidates": candidates}


def candidates(job, all_metrics, measured):
    """One row per run, or per choice, and candidate of a sweep: its values and its score.

    score: where the study selects, the mean over the inner folds; else that of the held-out part.
    chosen: whether the study went on with it. A column swept_KEY holds the values of each
    key.

    Args:
        job: the study.Study.
        measured: as of tidy.runs().
    """
    swept = job.config.get(grid.SWEPT, {})
    rows = []
    for each in job.selections:
        found = read_json(job.folder.selection(each.path))
        of_run = tidy.identify(
            {"settings": json.loads(job.table.runs[job.folder.chosen(each)].to_json())}
        )
        for label, one in found["candidates"].items():
            seen = {"candidate": label, "score": one["mean"], "core_seconds": one["core_seconds"]}
            seen |= {"epochs": one["epochs"], "rung": one["rung"]}
            seen |= {"chosen": label == found["kept"][0], "inner_folds": len(one["scores"])}
            rows.append(of_run | {"model": each.family} | seen | _values(swept, label))
    for run, measures in [] if job.selections else zip(all_metrics, measured, strict=True):
        of_run = tidy.identify(run)
        label = of_run["model"]
        if label in swept:
            seen = {"candidate": label, "score": next(iter(measures.values()))}
            seen |= {"core_seconds": run["cpu_seconds"], "chosen": None}
            seen |= {"epochs": len(run["epochs"]), "rung": 1}
            rows.append(of_run | {"model": swept[label]["family"]} | seen | _values(swept, label))
    names = [*tidy.RUN, "candidate", "score", "core_seconds", "epochs", "rung", "chosen"]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=names)


def _values(swept, label):
    values = swept.get(label, {"values": {}})["values"].items()
    return {
        f"{SWEPT}{key}": str(value) if isinstance(value, list) else value for key, value in values
    }


def by_family(job, frames):
    """The frames of a study that selects with the family in the place of the candidate."""
    if not job.selections:
        return frames
    swept = job.config.get(grid.SWEPT, {})
    family = {label: one["family"] for label, one in swept.items()}
    return {
        name: frame.assign(model=frame["model"].replace(family)) if "model" in frame else frame
        for name, frame in frames.items()
    }
