"""A plan as tables and sentences: per run, per way of using the cores, per study."""

from collections import defaultdict

import pandas as pd

from allcores.planning import plan
from allcores.planning.prediction import duration

# What a run leaves on disk beside its weights: metrics and a trace.
BESIDE_WEIGHTS = 50_000  # bytes
# The columns that say which way of training which model a row is of.
WAY = ["dataset", "model", "train_size", "strategy", "nodes", "workers", "threads", "cores"]


def of_runs(planned, packed, table, available):
    """A row per run: what it is, what is predicted of it, and when it would be at work.

    Args:
        planned: list of plan.Planned.
        packed: packing.Packed of the whole campaign.
        table: their grid.Table.
        available: number of cores that were planned for.
    """
    studies = defaultdict(list)
    for study, paths in table.studies.items():
        for path in paths:
            studies[path].append(study)
    rows = [_row(one, packed, table, available, studies[one.path]) for one in planned]
    return pd.DataFrame(rows)


def _row(one, packed, table, available, studies):
    start, end = packed.times[one.path]
    return {
        "study": " ".join(studies),
        **_identity(table.runs[one.path]),
        "cores": one.run.cores,
        "planned_cores": available,
        "planned_epochs": one.run.trained_epochs,
        "planned_batch_size": one.run.batch_size,
        "exclusive": one.exclusive,
        "start": start,
        "seconds": end - start,
        "training_seconds": packed.training[one.path],
        "images_per_second": one.images / packed.training[one.path],
        "memory_mb": one.prediction.memory / 1e6,
        "extrapolated": one.prediction.extrapolated,
    }


def _identity(run):
    return {
        "dataset": run.dataset.label,
        "model": run.model.label,
        "schedule": run.schedule.label,
        "strategy": run.strategy.label,
        "nodes": run.nodes,
        "workers": run.workers,
        "threads": run.threads_per_worker,
        "train_size": str(run.train_size or "all"),
        "split": "test" if run.folds is None else f"fold {run.fold} of {run.folds}",
        "seed": run.seed,
        "inner": "" if run.inner_folds is None else f"{run.inner_fold} of {run.inner_folds}",
    }


def of_ways(runs):
    """A row per way of training each model, the fastest first.

    seconds: of one run; images_per_second: in training; both among the neighbours it has.
    """
    ways = runs.groupby(WAY, sort=False).agg(
        runs=("seed", "size"),
        seconds=("seconds", "mean"),
        images_per_second=("images_per_second", "mean"),
        memory_mb=("memory_mb", "max"),
        extrapolated=("extrapolated", "any"),
    )
    ways = ways.reset_index()
    order = {key: n for n, key in enumerate(ways.groupby(WAY[:3], sort=False).groups)}
    place = [order[key] for key in zip(*(ways[column] for column in WAY[:3]), strict=True)]
    return (
        ways.assign(place=place)
        .sort_values(["place", "images_per_second"], ascending=[True, False])
        .drop(columns="place")
        .reset_index(drop=True)
    )


def of_studies(planned, table, available, memory):
    """A row per study, as if it were called alone, and one for all together.

    core_hours: of the cores that its runs claim; seconds: until its last run has ended; memory_mb:
    of the runs that are at work at once; disk_mb: of what its runs leave.
    """
    rows = []
    parts = {study: set(paths) for study, paths in table.studies.items()}
    if len(parts) > 1:
        parts["all together"] = set(table.runs)
    for study, paths in parts.items():
        own = [one for one in planned if one.path in paths]
        packed = plan.pack(own, table, available, memory)
        lasting = {path: end - start for path, (start, end) in packed.times.items()}
        longest = max(own, key=lambda one: lasting[one.path])
        claimed = sum(
            lasting[one.path] * (available if one.exclusive else one.run.cores) for one in own
        )
        rows.append(
            {
                "study": study,
                "runs": len(own),
                "core_hours": claimed / 3600,
                "seconds": packed.makespan,
                "memory_mb": packed.peak_memory / 1e6,
                "disk_mb": sum(one.weights + BESIDE_WEIGHTS for one in own) / 1e6,
                "longest_seconds": lasting[longest.path],
                "longest_run": longest.path,
            }
        )
    return pd.DataFrame(rows)


def said(runs, ways, studies, available, here):
    """Lines for a terminal.

    Args:
        available: number of cores that were planned for.
        here: number of cores of this machine.
    """
    for _, row in studies.iterrows():
        yield (
            f"{row['study']}: {row['runs']} runs, {duration(row['seconds'])} on {available} "
            f"core{'s' if available > 1 else ''} ({row['core_hours']:.2g} core-hours), "
            f"{row['memory_mb']:,.0f} MB of memory at most, {row['disk_mb']:,.0f} MB on disk"
        )
        yield f"    longest run: {duration(row['longest_seconds'])}, {row['longest_run']}"
    for (dataset, model, size), group in ways.groupby(WAY[:3], sort=False):
        yield ""
        yield f"{model} on {dataset}{'' if size == 'all' else f', {size} samples'}:"
        for _, row in group.iterrows():
            far = "  extrapolated" if row["extrapolated"] else ""
            yield (
                f"    {row['strategy']:24} {_layout(row):26} "
                f"{row['images_per_second']:12,.1f} images/s "
                f"{duration(row['seconds']):>14} a run {row['memory_mb']:8,.0f} MB{far}"
            )
    yield ""
    yield "Times are of training and scoring; preparing data and tables comes on top."
    if runs["extrapolated"].any():
        yield (
            f"Extrapolated: this machine has {here} core{'s' if here > 1 else ''}. That assumes "
            "memory as much faster as there are more cores, which matters most."
        )


def _layout(row):
    processes = f"{row['workers']} worker{'s' if row['workers'] > 1 else ''}"
    threads = "" if str(row["threads"]) == "1" else f" x {row['threads']} threads"
    return f"{processes}{threads}, {row['cores']} core{'s' if row['cores'] > 1 else ''}"
