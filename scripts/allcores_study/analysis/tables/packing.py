"""Runs packed onto the cores, compared with the same runs one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from allcores_study.analysis import comparison, style, tidy

if TYPE_CHECKING:
    from allcores_study.analysis.products import StudyFacts

TITLE = "packed or one after the other"
CAPTION = """
The runs of ``{study}`` packed onto the cores, compared with the same runs one after the other. *one
by one*: strategy, workers and threads of the runs one after the other. Runs without a counterpart
count only in *over bound*. *one by one seconds*: the sum of the runs' durations. *packed seconds*:
the share of each group in the makespan (from the first start to the last end), by core-seconds,
because all groups ran at the same time; the last row is the sum. *one by one training*: the sum of
the training times, without start-up, evaluation and waiting. *packed training*: the packed runs'
core-seconds of training divided by the cores. *over bound*: the makespan of all packed runs divided
by the shortest possible one, which is their core-seconds, with start-up and evaluation, divided by
the cores. *difference* and the columns after it: {metric} of the packed runs minus {metric} of the
others, paired by fold and seed, with Nadeau and Bengio's corrected interval and p values corrected
by Holm's method.
"""
# The columns that the page shows; the CSV has all.
COMPARED = ("one_by_one_seconds", "packed_seconds", "speedup", "training_speedup", "finding")

SAME = ["dataset", "model", "schedule", "train_size", "strategy"]
ALL = "all together"


def table(runs: pd.DataFrame, against_runs: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame:
    """Return one row per dataset, model, schedule, training-set size and strategy, and one for all.

    CAPTION explains the columns.

    Args:
        runs, against_runs: one row per run; those of against_runs ran one after the other.
    """
    packed, single = _with_durations(runs), _with_durations(against_runs)
    makespan, core_seconds = tidy.makespan(packed), packed["core_seconds"].sum()
    cores = tidy.cores_available(packed)
    over_bound = makespan / (core_seconds / cores)
    keys = [*SAME, *tidy.REPEAT]
    single, packed = single.merge(packed[keys]), packed.merge(single[keys])
    # Leaves out the share of runs without a counterpart, by core-seconds.
    packed_seconds = packed["core_seconds"].sum() / core_seconds * makespan
    single_groups = single.groupby(SAME, sort=False)
    packed_groups = packed.groupby(SAME, sort=False)
    table = pd.DataFrame(
        {
            "runs": packed_groups.size(),
            "one_by_one_seconds": single_groups["duration"].sum(),
            "packed_seconds": packed_groups["core_seconds"].sum() / core_seconds * makespan,
            "one_by_one_training": single_groups["training_seconds"].sum(),
            "packed_training": packed_groups["training_core_seconds"].sum() / cores,
            f"one_by_one_{facts.metric.name}": single_groups.apply(comparison.mean),
            f"packed_{facts.metric.name}": packed_groups.apply(comparison.mean),
        }
    ).reset_index()
    compared = comparison.compare(packed, single, SAME, facts.metric)
    columns = ["pairs", "difference", "low", "high", "at_most", "p_corrected", "finding"]
    table = table.merge(compared[[*SAME, *columns]], on=SAME, how="left")
    training = ["one_by_one_training", "packed_training"]
    total = [ALL, len(packed), single["duration"].sum(), packed_seconds, *table[training].sum()]
    table.loc[len(table), ["model", "runs", "one_by_one_seconds", "packed_seconds", *training]] = (
        total
    )
    table["runs"] = table["runs"].astype(int)
    table["speedup"] = table["one_by_one_seconds"] / table["packed_seconds"]
    table["training_speedup"] = table["one_by_one_training"] / table["packed_training"]
    table.loc[table["model"] == ALL, "over_bound"] = over_bound
    setups = dict.fromkeys(style.setup_text(row) for _, row in single.iterrows())
    return table.assign(one_by_one=" / ".join(setups))


def _with_durations(runs: pd.DataFrame) -> pd.DataFrame:
    duration = runs["lasted_seconds"]
    return runs.assign(
        duration=duration,
        core_seconds=duration * runs["cores"],
        training_core_seconds=runs["training_seconds"] * runs["cores"],
    )


def sentences(packing_table: pd.DataFrame) -> Iterator[str]:
    """Yield how much faster packing is."""
    total = packing_table[packing_table["over_bound"].notna()].iloc[0]
    yield (
        f"Packing {total['runs']:.0f} runs onto the cores is {total['speedup']:.2f} times as fast "
        f"as running them one after the other with {total['one_by_one']}: "
        f"{total['packed_seconds']:,.0f} s against {total['one_by_one_seconds']:,.0f} s."
    )
