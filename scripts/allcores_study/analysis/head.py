"""The first lines of a report: what was compared, on what, when and with what. No torch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from allcores.machine.costs import duration
from allcores_study.analysis import methods, tidy
from allcores_study.analysis.wording import comma_separated, count
from allcores_study.config import grid

if TYPE_CHECKING:
    import pandas as pd

    from allcores_study.data.facts import Facts

MOST_CLASSES, MOST_NAMES = 6, 6  # in a list


def facts(
    runs: pd.DataFrame,
    candidates: pd.DataFrame,
    missing: pd.DataFrame,
    infos: dict[str, Facts],
) -> Iterator[tuple[str, str]]:
    """Yield (name, fact) for each line.

    Args:
        runs, candidates, missing: the tidy CSVs with a row per run, per candidate and choice, and
            per run that failed.
        infos: label of a dataset -> its Facts.
    """
    for label, info in infos.items():
        yield "data", f"{label}: {_data(info)}"
    inner = candidates[candidates["chosen"].notna()]
    more = f", and {inner['inner_folds'].sum():,.0f} on inner folds" if len(inner) else ""
    yield "compared", _compared(runs)
    failed = f", {len(missing)} others failed" if len(missing) else ""
    yield "runs", _runs(runs) + more + failed
    yield "machine", _machine(runs)
    yield "trained", _when(runs, inner)
    first = runs.iloc[0]
    versions = f"Python {first['machine_python']}, torch {first['machine_torch']}"
    yield "software", f"allcores {methods.version()}, {versions}"


def _data(facts: Facts) -> str:
    """Describe the samples and what is predicted."""
    parts = [f"{facts.count:,} samples of {' x '.join(map(str, facts.shape))} values"]
    if names := facts.classes:
        listed = comma_separated(names[:MOST_CLASSES]) + ", ..." * (len(names) > MOST_CLASSES)
        parts.append(f"{len(names)} classes ({listed})")
    elif names := facts.names:
        parts.append(f"predicted: {comma_separated(names[:MOST_NAMES])}")
    if names := facts.group_names:
        listed = comma_separated(names[:MOST_NAMES]) + ", ..." * (len(names) > MOST_NAMES)
        parts.append(f"{len(names)} groups ({listed})")
    return ", ".join(parts)


def _compared(runs: pd.DataFrame) -> str:
    """List the models, and the schedules and strategies if there are several."""
    parts = [_several("model", list(runs["model"].unique()))]
    schedules = [name for name in runs["schedule"].unique() if name != grid.NO_SCHEDULE.label]
    for noun, names in (("schedule", schedules), ("strategy", list(runs["strategy"].unique()))):
        if len(names) > 1:
            parts.append(_several(noun, names))
    return "; ".join(parts)


def _several(noun: str, names: list[str]) -> str:
    plural = {"strategy": "strategies"}.get(noun, f"{noun}s")
    listed = comma_separated(names[:MOST_NAMES]) + ", ..." * (len(names) > MOST_NAMES)
    return f"{len(names)} {noun if len(names) == 1 else plural} ({listed})"


def _runs(runs: pd.DataFrame) -> str:
    """Return the folds x seeds, and how many runs that makes."""
    splits, seeds = runs["split"].nunique(), runs["seed"].nunique()
    is_test = runs["split"].iloc[0] == "test"
    split = "the test set of the data" if is_test else count(splits, "fold")
    return f"{split} x {count(seeds, 'seed')}: {count(len(runs), 'run')}"


def _machine(runs: pd.DataFrame) -> str:
    machines = runs.drop_duplicates(["machine_host", "machine_processor"])
    named = [
        f"{row['machine_processor']}, {count(row['machine_cores_allowed'], 'core')}"
        for _, row in machines.iterrows()
    ]
    return "; ".join(dict.fromkeys(named))


def _when(runs: pd.DataFrame, inner: pd.DataFrame) -> str:
    """Return the day of the first run, and for how long runs were trained, without pauses."""
    day = time.strftime("%Y-%m-%d", time.gmtime(runs["started"].min()))
    if len(inner):  # when inner runs began and ended is not kept
        spent = runs["cpu_seconds"].sum() + inner["core_seconds"].sum()
        return f"{day}, {duration(spent)} of CPU time"
    seconds, lasted = runs["training_seconds"].sum(), tidy.makespan(runs)
    return f"{day}, {duration(seconds)} of training in {duration(lasted)}"
