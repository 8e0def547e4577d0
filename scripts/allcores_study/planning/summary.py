"""A plan as tables and sentences: per setup and per study."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd

from allcores.machine.costs import duration
from allcores_study.planning import plan

if TYPE_CHECKING:
    from allcores_study.config.grid import Table

# Bytes that a run leaves on disk in addition to its weights: metrics and a trace.
RECORD_BYTES = 50_000
# The columns that identify the setup and the model of a row.
SETUP = ["dataset", "model", "train_size", "strategy", "nodes", "workers", "threads", "cores"]


def of_setups(planned: list[plan.Planned], table: Table, available: int) -> pd.DataFrame:
    """Return a row per setup of each model, the fastest first.

    seconds: of one run; samples_per_second: in training; both slowed down by its neighbours. The
    candidates of a sweep count as one model, with their means.

    Args:
        available: number of cores.
    """
    busy = plan.packed_cores(planned)
    runs = pd.DataFrame([_row(item, busy, table, available) for item in planned])
    setups = runs.groupby(SETUP, sort=False).agg(
        runs=("seconds", "size"),
        seconds=("seconds", "mean"),
        samples_per_second=("samples_per_second", "mean"),
        memory_mb=("memory_mb", "max"),
        contended=("contended", "any"),
    )
    setups = setups.reset_index()
    order = {key: n for n, key in enumerate(setups.groupby(SETUP[:3], sort=False).groups)}
    place = [order[key] for key in zip(*(setups[name] for name in SETUP[:3]), strict=True)]
    return (
        setups.assign(place=place)
        .sort_values(["place", "samples_per_second"], ascending=[True, False])
        .drop(columns="place")
        .reset_index(drop=True)
    )


def _row(item: plan.Planned, busy: int, table: Table, available: int) -> dict[str, Any]:
    run, crowd = table.runs[item.path], item.crowd(busy, available)
    return {
        "dataset": run.dataset.label,
        "model": table.family(run),
        "train_size": str(run.train_size or "all"),
        "strategy": run.strategy.label,
        "nodes": run.nodes,
        "workers": run.workers,
        "threads": run.threads_per_worker,
        "cores": item.run.cores,
        "seconds": item.prediction.seconds_among(crowd),
        "samples_per_second": item.images / item.prediction.training_among(crowd),
        "memory_mb": item.prediction.memory / 1e6,
        "contended": item.prediction.contended,
    }


def of_studies(
    planned: list[plan.Planned], table: Table, available: int, memory: float
) -> pd.DataFrame:
    """Return a row per study, as if it were run alone, and one for all of them together.

    core_hours: claimed by its runs; seconds: until its last run has ended; memory_mb: the most that
    its runs claim at the same time; disk_mb: of the files that they leave.
    """
    rows = []
    parts = {study: set(paths) for study, paths in table.studies.items()}
    if len(parts) > 1:
        parts["all together"] = set(table.runs)
    for study, paths in parts.items():
        items = [item for item in planned if item.path in paths]
        if not items:
            continue
        makespan, peak_memory = plan.pack(items, table, available, memory)
        busy = plan.packed_cores(items)
        durations = {item.path: item.seconds(busy, available) for item in items}
        longest = max(items, key=lambda item: durations[item.path])
        claimed = sum(
            durations[item.path] * (available if item.exclusive else item.run.cores)
            for item in items
        )
        rows.append(
            {
                "study": study,
                "runs": len(items),
                "core_hours": claimed / 3600,
                "seconds": makespan,
                "memory_mb": peak_memory / 1e6,
                "disk_mb": sum(item.weights + RECORD_BYTES for item in items) / 1e6,
                "longest_seconds": durations[longest.path],
                "longest_run": longest.path,
            }
        )
    return pd.DataFrame(rows)


def report_lines(
    setups: pd.DataFrame, studies: pd.DataFrame, available: int, cores_here: int
) -> Iterator[str]:
    """Yield lines for a terminal.

    Args:
        available: number of cores that were planned for.
        cores_here: number of cores of this machine.
    """
    for _, row in studies.iterrows():
        yield (
            f"{row['study']}: {row['runs']} runs, {duration(row['seconds'])} on {available} "
            f"core{'s' if available > 1 else ''} ({row['core_hours']:.2g} core-hours), "
            f"{row['memory_mb']:,.0f} MB of memory claimed, {row['disk_mb']:,.0f} MB on disk"
        )
        yield f"    longest run: {duration(row['longest_seconds'])}, {row['longest_run']}"
    for (dataset, model, size), group in setups.groupby(SETUP[:3], sort=False):
        yield ""
        yield f"{model} on {dataset}{'' if size == 'all' else f', {size} samples'}:"
        for _, row in group.iterrows():
            mark = "  contended" if row["contended"] else ""
            yield (
                f"    {row['strategy']:24} {_processes(row):26} "
                f"{row['samples_per_second']:12,.1f} samples/s "
                f"{duration(row['seconds']):>14} per run {row['memory_mb']:8,.0f} MB{mark}"
            )
    yield ""
    yield "Times are for training and scoring; preparing data and making tables come on top."
    if setups["contended"].any():
        yield (
            "Contended: other programs used the cores while that was measured. When they are idle, "
            "delete measurements.json in the folder of the plan, and plan again."
        )
    if available > cores_here:
        yield (
            f"This machine has {cores_here} core{'s' if cores_here > 1 else ''}: the time on "
            f"{available} assumes that runs slow each other down as much there as here."
        )


def _processes(row: pd.Series) -> str:
    """Return workers, threads and cores in words."""
    workers = f"{row['workers']} worker{'s' if row['workers'] > 1 else ''}"
    threads = "" if str(row["threads"]) == "1" else f" x {row['threads']} threads"
    return f"{workers}{threads}, {row['cores']} core{'s' if row['cores'] > 1 else ''}"
