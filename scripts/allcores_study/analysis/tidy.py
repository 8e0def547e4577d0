"""Tidy tables of a study's runs, with a row per run, epoch or class, and helpers for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from allcores_study.config import grid

if TYPE_CHECKING:
    from allcores_study.analysis.study import Study
    from allcores_study.config.run import Run

# Columns of a combination of settings; its runs in folds and seeds are repeats.
SETTINGS = ["dataset", "model", "schedule", "strategy", "nodes", "workers", "threads", "train_size"]
REPEAT = ["split", "seed"]
RUN = [*SETTINGS, *REPEAT]
# Columns with labels from the config or the dataset, read as texts.
LABELS = [
    *("dataset", "model", "schedule", "strategy", "train_size", "split"),
    *("class", "output", "true", "predicted", "column", "category"),
]
# Prefix of columns with the name of a class.
CLASS = "class "
# Prefix of columns with the name of a group.
GROUP = "group "
# Settings that decide the speed: runs that differ only in the schedule are also repeats.
SPEED_SETTINGS = [column for column in SETTINGS if column != "schedule"]
# Columns of an epoch, in addition to its phases.
EPOCH = ["epoch", "loss", "lr", "seconds", "accuracy", "held_out_loss"]
# Notes of the speed table.
OTHER_CONDITIONS, CONTENDED = "other conditions", "contended"
# A dataset, a model and a setup: a strategy with its nodes, workers and threads.
SETUP = [column for column in SPEED_SETTINGS if column != "train_size"]
PAUSE = 30  # seconds without any run: a pause between two invocations of snakemake, cut out


def read(path: str | Path) -> pd.DataFrame:
    """Read a CSV of this workflow; labels are texts, even if they look like numbers."""
    labels = dict.fromkeys(LABELS, str)
    frame = pd.read_csv(path, dtype=labels, keep_default_na=False, na_values=[""])
    if frame.empty:  # without rows, pandas cannot infer that the other columns are numbers
        frame = frame.astype(dict.fromkeys(frame.columns.difference(LABELS), float))
    return frame


def identify(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that identify the run of a row."""
    settings = metrics["settings"]
    folds = settings["folds"]
    return {
        "dataset": settings["dataset"]["label"],
        "model": settings["model"]["label"],
        "schedule": settings["schedule"]["label"],
        "strategy": settings["strategy"]["label"],
        "nodes": settings["nodes"],
        "workers": settings["workers"],
        "threads": settings["threads_per_worker"],
        "train_size": str(settings["train_size"] or "all"),
        "split": "test" if folds is None else f"fold {settings['fold']} of {folds}",
        "seed": settings["seed"],
    }


def identity_of(study: Study, run: Run) -> dict[str, Any]:
    """Return what names a Run in the frames of its study, as identify() does."""
    return identify({"settings": json.loads(run.to_json())})


def runs(all_metrics: list[dict[str, Any]], measured: list[dict[str, float]]) -> pd.DataFrame:
    """Return one row per run, identify() first; times in seconds, started and ended since 1970.

    Args:
        measured: {name of a metric: value} of each run; the first value is the score.
    """
    return pd.DataFrame(
        identify(metrics)
        | {"score": next(iter(measures.values()))}
        | measures
        | {
            "cores": _cores(metrics),
            "threads_used": metrics["settings"]["threads_per_worker"],
            "precision": metrics["settings"]["precision"],
            "memory_format": metrics["settings"]["memory_format"],
            "stacked": metrics["stacked"],
            "loss": metrics["loss"],
            "train_samples": metrics["train_samples"],
            "held_out_samples": metrics["held_out_samples"],
            "held_out_unknown": metrics["held_out_unknown"],
            "ordered": metrics["ordered"],
            "grouped": metrics["grouped"],
            "batch_size": metrics["settings"]["batch_size"],
            "epochs": len(metrics["epochs"]),
            "diverged": _diverged(metrics),
            "parameters": metrics["parameters"],
            "training_seconds": metrics["training_seconds"],
            "start_up_seconds": metrics["start_up_seconds"],
            "cpu_seconds": metrics["cpu_seconds"],
            "peak_memory_mb": metrics["peak_memory_bytes"] / 1e6,
            "pinned": metrics["cores"]["pinned"] is not None,
            "pinned_to": " ".join(map(str, metrics["cores"]["pinned"] or [])),
            "contended": metrics["cores"]["contended"],
            "stopped_seconds": metrics["cores"]["stopped_seconds"],
            "exclusive": metrics["conditions"]["exclusive"],
            "cores_of_call": metrics["conditions"]["cores_of_call"],
            "resumed": metrics["resumed"],
            "started": metrics["started"],
            "ended": metrics["ended"],
            # A run that was resumed has several.
            "sessions": " ".join(f"{s['started']}-{s['ended']}" for s in metrics["sessions"]),
            "lasted_seconds": sum(s["ended"] - s["started"] for s in metrics["sessions"])
            - metrics["cores"]["stopped_seconds"],
        }
        | {f"machine_{key}": value for key, value in metrics["machine"].items()}
        for metrics, measures in zip(all_metrics, measured, strict=True)
    )


def _diverged(metrics: dict[str, Any]) -> str | None:
    """Return where a run diverged, in words; None: it did not."""
    where = metrics["diverged"]
    if where is None:
        return None
    step = "" if where["step"] is None else f", step {where['step']}"
    rate = "" if where["lr"] is None else f", learning rate {where['lr']:.3g}"  # an estimator
    return f"epoch {where['epoch']}{step}{rate}"


def epochs(all_metrics: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per epoch of each network's run that did not diverge.

    Each phase has a column of seconds.
    """
    rows = [
        identify(metrics)
        | {key: value for key, value in epoch.items() if key not in ("phases", "staleness")}
        | {f"{phase}_seconds": seconds for phase, seconds in epoch["phases"].items()}
        for metrics in all_metrics
        if metrics["diverged"] is None and metrics["settings"]["optimizer"]
        for epoch in metrics["epochs"]
    ]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=[*RUN, *EPOCH])


def staleness(all_metrics: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per run and staleness: how many updates of an asynchronous strategy had it.

    With several servers, each counts its part of an update.
    """
    rows = [
        identify(metrics) | {"staleness": staleness, "updates": updates}
        for metrics in all_metrics
        for epoch in metrics["epochs"]
        for staleness, updates in enumerate(epoch.get("staleness", []))
    ]
    names = [*SETTINGS, *REPEAT, "staleness"]
    return pd.DataFrame(rows, columns=[*names, "updates"]).groupby(names).sum().reset_index()


def classes(all_metrics: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per class of each run that did not diverge."""
    parts = [
        _of_run(
            metrics,
            {
                "class": metrics["names"],
                "samples": np.sum(metrics["confusion"], axis=1),
                "correct": np.diag(metrics["confusion"]),
            },
        )
        for metrics in all_metrics
        if metrics["diverged"] is None and "confusion" in metrics
    ]
    return _below_each_other(parts, ["class", "samples", "correct"])


def outputs(all_metrics: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per number or label of each run that predicts several and did not diverge."""
    parts = [
        _of_run(metrics, {"output": metrics["names"], **_columns(metrics["of_each"])})
        for metrics in all_metrics
        if metrics["diverged"] is None and "of_each" in metrics
    ]
    return _below_each_other(parts, ["output"])


def _columns(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [record[name] for record in records] for name in records[0]}


def confusion(all_metrics: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per run, true and predicted class.

    Pairs without samples are left out, unless the two classes are equal.
    """
    parts = []
    for metrics in all_metrics:
        if metrics["diverged"] is None and "confusion" in metrics:
            counts = np.array(metrics["confusion"])
            names = np.array(metrics["names"], dtype=object)
            true, predicted = np.nonzero(counts + np.eye(len(counts)))
            pairs = {"true": names[true], "predicted": names[predicted]}
            parts.append(_of_run(metrics, pairs | {"samples": counts[true, predicted]}))
    return _below_each_other(parts, ["true", "predicted", "samples"])


def _of_run(metrics: dict[str, Any], columns: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(identify(metrics) | columns)


def _below_each_other(parts: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    return pd.concat(parts) if parts else pd.DataFrame(columns=[*RUN, *columns])


def conditions(runs: pd.DataFrame) -> list[str]:
    """Return the conditions of each run's timing, in words; only equal ones are comparable."""
    alone = np.where(runs["exclusive"].astype(bool), "alone", "packed")
    alone = np.where(runs["stacked"].astype(bool), "stacked", alone)
    return [
        f"{how}, {processor}, torch {torch}"
        for how, processor, torch in zip(
            alone, runs["machine_processor"], runs["machine_torch"], strict=True
        )
    ]


def of_first_and_best(frame: pd.DataFrame, right: pd.Series, samples: pd.Series) -> pd.DataFrame:
    """Return the rows of the first model and of the most accurate one on each dataset.

    Args:
        frame: has model, dataset and train_size.
        right, samples: how many samples each row stands for, and how many of them are right.
    """
    counts = {"right": np.asarray(right), "samples_of_row": np.asarray(samples)}
    shown = []
    for _, group in frame.assign(**counts).groupby(["dataset", "train_size"], sort=False):
        sums = group.groupby("model")[[*counts]].sum()
        names = {group["model"].iloc[0], (sums["right"] / sums["samples_of_row"]).idxmax()}
        shown.append(group[group["model"].isin(names)].drop(columns=[*counts]))
    return pd.concat(shown)


def without_warm_up(epochs: pd.DataFrame) -> pd.DataFrame:
    """Return the epochs of each run without the first, unless that is the only one."""
    return epochs[(epochs["epoch"] > 1) | (epochs.groupby(RUN)["epoch"].transform("max") == 1)]


def timed(runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """Return runs with the columns epoch_seconds and samples_per_second, without warm-up.

    Epochs count by their median, so one in which the process was stopped or disturbed does not.
    """
    per_epoch = without_warm_up(epochs).groupby(RUN, sort=False)["seconds"].median()
    merged = runs.merge(per_epoch.rename("epoch_seconds"), on=RUN)
    return merged.assign(samples_per_second=merged["train_samples"] / merged["epoch_seconds"])


def with_elapsed(epochs: pd.DataFrame) -> pd.DataFrame:
    """Return epochs with the column elapsed: seconds of training until the end of the epoch."""
    return epochs.assign(elapsed=epochs.groupby(RUN)["seconds"].cumsum())


def learning_curve(epochs: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a row per epoch: mean elapsed seconds; mean, low and high of a column over repeats.

    An epoch that some runs have not reached, as those that stop early, has none.

    Args:
        epochs: with_elapsed() of runs that are repeats of one another.
    """
    counts = epochs.groupby("epoch")["elapsed"].transform("size")
    per_epoch = epochs[counts == counts.max()].groupby("epoch")
    return per_epoch.agg(
        elapsed=("elapsed", "mean"),
        mean=(column, "mean"),
        low=(column, "min"),
        high=(column, "max"),
    ).reset_index()


def without_pauses(intervals: Iterable[tuple[float, ...]]) -> Callable[[float | pd.Series], Any]:
    """Return a function from seconds since 1970 to seconds since the start, without pauses.

    Args:
        intervals: (start, end) of each run, in seconds since 1970; gaps longer than PAUSE are cut
            out.
    """
    real: list[float]
    shown: list[float]
    real, shown = [], []
    for start, stop in sorted(intervals):
        if not real:
            real, shown = [start, start], [0.0, 0.0]
        if start - real[-1] > PAUSE:
            real += [start, start]
            shown += [shown[-1], shown[-1]]
        if stop > real[-1]:
            shown[-1] += stop - real[-1]
            real[-1] = stop
    return lambda time: np.interp(time, real, shown)


def makespan(runs: pd.DataFrame) -> float:
    """Return the seconds from the start of the first run to the end of the last, without pauses."""
    intervals = [
        tuple(map(float, session.split("-")))
        for sessions in runs["sessions"]
        for session in sessions.split()
    ]
    return float(without_pauses(intervals)(runs["ended"].max()))


def cores_available(runs: pd.DataFrame) -> int:
    """Return how many cores the invocation could use, summed over machines."""
    return int(runs.groupby("machine_host")["cores_of_call"].max().sum())


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the combinations of settings in order of appearance, which is the config's."""
    return frame.drop_duplicates(SETTINGS)[SETTINGS].reset_index(drop=True)


def varying(frame: pd.DataFrame, columns: Iterable[str] = SETTINGS) -> list[str]:
    """Return the columns with more than one value; the others need not be shown.

    The missing schedule of an estimator does not count as a value.
    """
    values = {column: frame[column] for column in columns}
    if "schedule" in values:
        values["schedule"] = values["schedule"].replace(grid.NO_SCHEDULE.label, None)
    return [column for column, of_column in values.items() if of_column.nunique() > 1]


def _cores(metrics: dict[str, Any]) -> int:
    processes = metrics["settings"]["workers"] + metrics["settings"]["servers"]
    return processes * metrics["settings"]["threads_per_worker"]
