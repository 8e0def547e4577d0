"""The final models of a study: trained once on all samples, by what was cross-validated."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.files import write_json, write_text
from allcores_study.analysis.study import folder_of_final
from allcores_study.records import run_files
from allcores_study.records.results_folder import FINAL_MODELS
from allcores_study.records.run_files import METRICS, WEIGHTS

if TYPE_CHECKING:
    import pandas as pd

    from allcores_study.analysis.metrics import Metric
    from allcores_study.analysis.study import Study
    from allcores_study.config.run import Run


def write(study: Study) -> None:
    """Copy the final models of a study beside its report, and list them with what to expect.

    Raises:
        ValueError: a result is damaged.
        OSError: a file cannot be read or written.
    """
    from allcores_study.analysis import tidy  # not at the top: snakemake would import pandas

    place = Path(study.final_place)
    if not study.final_runs:
        (place / Path(FINAL_MODELS).name).unlink(missing_ok=True)
        return
    runs = tidy.read(study.tidy["runs"])
    listed = []
    for run in study.final_runs:
        folder = place / folder_of_final(run)
        folder.mkdir(parents=True, exist_ok=True)
        of_run = Path(study.folder.run(run.path))
        metrics = run_files.metrics(of_run)
        (folder / WEIGHTS).write_bytes(run_files.checked(of_run, metrics, WEIGHTS))
        write_text(folder / METRICS, (of_run / METRICS).read_text())
        listed.append(
            {
                "folder": folder_of_final(run),
                "dataset": run.dataset.label,
                "model": run.model.label,
                "schedule": run.schedule.label,
                "diverged": bool(metrics["diverged"]),
                "train_samples": metrics["train_samples"],
                "chosen": _choice(study, run),
                "expected": _expected(study, run, runs),
            }
        )
    listed.sort(key=lambda entry: (entry["diverged"], _rank(entry["expected"], study.facts.metric)))
    models = {"metric": study.facts.metric.name, "models": listed}
    write_json(place / Path(FINAL_MODELS).name, models)


def _choice(study: Study, run: Run) -> dict[str, Any] | None:
    """Return the candidate that was chosen on all samples, with the scores of all of them."""
    choice = study.folder.choice_made(run.path) if run.path in study.table.selections else None
    return choice and {"candidate": choice["chosen"], "candidates": choice["candidates"]}


def _expected(study: Study, run: Run, runs: pd.DataFrame) -> dict[str, Any]:
    """Return the mean score of the cross-validated runs, with its 95 % interval; None: undefined.

    That of the final model on new data should be near, as it is trained in the same way, on a few
    more samples than the largest training set of the cross-validation. Runs that diverged leave it
    undefined.
    """
    from allcores_study.analysis import comparison  # not at the top: it imports scipy

    settings = {
        "dataset": run.dataset.label,
        "model": run.model.label,
        "schedule": run.schedule.label,
        "strategy": run.strategy.label,
        "nodes": run.nodes,
        "workers": run.workers,
        "threads": run.threads_per_worker,
    }
    of_run = runs[(runs[[*settings]] == list(settings.values())).all(axis=1)]
    of_run = of_run[of_run["train_size"].isin(of_run.nlargest(1, "train_samples")["train_size"])]
    low, high = comparison.interval(of_run, study.facts.metric)
    mean = comparison.mean(of_run) if of_run["score"].notna().all() else math.nan
    values = {"score": mean, "low_95": low, "high_95": high} if math.isfinite(mean) else {}
    known = {key: float(value) if math.isfinite(value) else None for key, value in values.items()}
    return dict.fromkeys(("score", "low_95", "high_95")) | known | {"runs": len(of_run)}


def _rank(expected: dict[str, Any], metric: Metric) -> float:
    """Return the sort key of a model, the smallest for the best."""
    return math.inf if expected["score"] is None else -metric.sign * expected["score"]
