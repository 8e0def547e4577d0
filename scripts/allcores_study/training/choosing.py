"""Choose the candidate that a chosen run trains, by the mean scores of its inner runs.

This is scikit-learn's GridSearchCV inside an outer fold: the test fold is not used.
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.files import sha256
from allcores_study.config import registry
from allcores_study.config.run import digest
from allcores_study.records import fingerprint, run_files
from allcores_study.records.identity import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allcores_study.config.candidates import Selection
    from allcores_study.records.results_folder import ResultsFolder


def choose(selection: Selection, folder: ResultsFolder, is_recorded: bool = True) -> str:
    """Choose a candidate, record the choice, and return the label.

    The record has the label as "chosen", and "candidates": label -> {"scores": of its inner runs,
    "mean": their mean, or None if a run diverged, "epochs": how many its runs trained at most,
    "core_seconds": CPU time of its inner runs}.

    Raises:
        ValueError: every candidate diverged, or a result is damaged.
        OSError: an inner run has no result.
    """
    metric = selection.metrics[0]
    candidates = {
        label: _scored([run_files.metrics(folder.run(path)) for path in paths], metric)
        for label, paths in selection.inner.items()
    }
    label = best(candidates, metric)
    if not is_recorded:  # but by the first of several nodes
        return label
    file = Path(folder.selection(selection.path))
    file.parent.mkdir(parents=True, exist_ok=True)
    digests = {path: sha256(folder.metrics(path)) for path in selection.compared}
    content = {"chosen": label, "metric": metric, "candidates": candidates}
    Record(made_of(selection, digests), content=content).write(file)
    return label


def made_of(selection: Selection, digests: Mapping[str, str | None]) -> str:
    """Return a digest of all that decides a choice.

    Args:
        digests: path of each inner run -> digest of its metrics.json; None: there is none.
    """
    return digest(json.dumps([fingerprint.of_choice(), selection.metrics[0], digests]))


def best(candidates: dict[str, dict[str, Any]], metric: str) -> str:
    """Return the candidate with the best mean score, the first of equal ones.

    Args:
        candidates: as recorded by choose().
        metric: name of the metric.

    Raises:
        ValueError: none has a mean.
    """
    means = {label: entry["mean"] for label, entry in candidates.items()}
    finite = {label: mean for label, mean in means.items() if mean is not None}
    if not finite:
        raise ValueError(f"all candidates diverged, or have no {metric}: {', '.join(candidates)}")
    less_is_better = registry.metric(metric).constants.get("less_is_better", False)
    return (min if less_is_better else max)(finite, key=finite.__getitem__)


def _scored(runs: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """Return what choose() records of a candidate, from the metrics of its inner runs."""
    scores = [run["scores"][metric] for run in runs]
    is_known = all(score is not None for score in scores)
    return {
        "scores": scores,
        "mean": statistics.fmean(scores) if is_known else None,
        "epochs": max(len(run["epochs"]) for run in runs),
        "core_seconds": math.fsum(run["cpu_seconds"] for run in runs),
    }
