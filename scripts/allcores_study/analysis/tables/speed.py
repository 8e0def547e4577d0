"""Samples per second, speedup and efficiency of every setup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import percent

if TYPE_CHECKING:
    from allcores_study.analysis.products import StudyFacts

TITLE = "speed of every setup"
CAPTION = """
Training speed of each setup. Runs that differ only in schedule, fold or seed are repeats of one
another. *seconds*: median training time of a whole run. *epoch seconds*: median time of an epoch,
without the first one, which is warm-up. *samples per second*: the median over runs, from the same
epochs. *slowest*, *fastest*: the range over runs. **Two baselines**: *speedup* is relative to
**{base}**, for the same dataset, model and training-set size; *over best* is relative to **the
fastest {baseline} with at most as many cores**, used as threads. *efficiency*: the speedup divided
by the ratio of cores. *utilisation*: the share of its cores that a run kept busy from start to end.
*note*: *oversubscribed* if there were more processes than cores; *stopped* if a run was suspended
and continued, for example by Ctrl-Z; *contended* if others used the cores for more than a tenth of
the time; *not pinned* if the system chose the cores; *other conditions* if the *conditions* (alone
or packed, processor, torch) differ from the baseline's, so that there is no speedup. *sent mb*:
megabytes sent between nodes per epoch. The last columns are the share of each phase in the training
time of the first worker. If a strategy hides part of its communication behind computation, only the
rest counts as *communicate*. Unless the study is ``exclusive``, other runs used other cores of the
machine at the same time.
"""
# The columns that the page shows; the CSV has all.
COMPARED = ("cores", "samples_per_second", "speedup", "efficiency", "note")

PHASE = "_seconds"
# Bytes that workers and servers sent between nodes in an epoch.
SENT = "sent_between_nodes"
# Format of the columns that wording.NUMBERS does not name: the shares of the phases.
OTHERS = percent(0)


def table(runs: pd.DataFrame, epochs: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame | None:
    """Return one row per dataset, model, strategy, nodes, workers, threads and training-set size.

    CAPTION explains the columns. samples counts those of a whole run; shares are in 0..1. speedup
    and efficiency are empty if the conditions differ from the baseline's.
    """
    if not facts.compares_speeds(runs):
        return None
    speeds = tidy.timed(runs, epochs)
    allowed = speeds["machine_cores_allowed"] * speeds["nodes"]
    available = speeds["lasted_seconds"] * np.minimum(speeds["cores"], allowed)
    table = (
        speeds.assign(
            utilisation=speeds["cpu_seconds"] / available,
            samples=speeds["train_samples"] * speeds["epochs"],
            conditions=tidy.conditions(speeds),
            allowed=allowed,
        )
        .groupby([*tidy.SPEED_SETTINGS, "cores"], sort=False)
        .agg(
            runs=("seed", "size"),
            seconds=("training_seconds", "median"),
            samples=("samples", "median"),
            epoch_seconds=("epoch_seconds", "median"),
            samples_per_second=("samples_per_second", "median"),
            slowest=("samples_per_second", "min"),
            fastest=("samples_per_second", "max"),
            utilisation=("utilisation", "median"),
            contended=("contended", "any"),
            allowed=("allowed", "min"),
            conditions=("conditions", lambda texts: " / ".join(sorted(set(texts)))),
            mixed=("conditions", lambda texts: texts.nunique() > 1),
            stopped=("stopped_seconds", "sum"),
            pinned=("pinned", "all"),
        )
        .reset_index()
    )
    if SENT in epochs:
        sent = epochs.groupby(tidy.SPEED_SETTINGS)[SENT].mean().div(1e6).rename("sent_mb")
        table = table.merge(sent.reset_index(), on=tidy.SPEED_SETTINGS)
    table = against_baseline(table, facts.baseline)
    crowded = table["cores"] > table["allowed"]
    table["note"] = np.select(
        [
            *(table["other_conditions"], crowded, table["stopped"] > 0, table["contended"]),
            ~table["pinned"].astype(bool),
        ],
        [tidy.OTHER_CONDITIONS, "oversubscribed", "stopped", tidy.CONTENDED, "not pinned"],
        default="",
    )
    table = table.drop(columns=["contended", "allowed", "other_conditions", "stopped", "pinned"])
    return table.merge(phase_shares(epochs), on=tidy.SPEED_SETTINGS)


def against_baseline(table: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return the table with the columns speedup, efficiency, over_best and other_conditions.

    other_conditions is true if the conditions differ from the baseline's, or between the runs of
    either. speedup and efficiency are empty there.
    """
    group = ["dataset", "model", "train_size"]
    baselines = table[table["strategy"] == baseline].sort_values("cores", kind="stable")
    kept = ["cores", "samples_per_second", "conditions", "mixed"]
    base = baselines.drop_duplicates(group)[[*group, *kept]]
    comparable = baselines.groupby([*group, "conditions"])["samples_per_second"]
    best = baselines.assign(best=comparable.cummax())
    table = table.merge(base, on=group, how="left", suffixes=("", "_base"))
    # The fastest baseline under the same conditions with at most as many cores.
    table = pd.merge_asof(
        table.reset_index().sort_values("cores"),
        best[[*group, "conditions", "cores", "best"]],
        on="cores",
        by=[*group, "conditions"],
    ).sort_values("index", ignore_index=True)
    speed = table["samples_per_second"]
    table["speedup"] = speed / table["samples_per_second_base"]
    table["efficiency"] = table["speedup"] * table["cores_base"] / table["cores"]
    table["over_best"] = speed / table["best"]
    has_base = table["conditions_base"].notna()
    is_mixed = table["mixed"] | (table["mixed_base"] == True)  # noqa: E712 - NaN without a baseline
    is_other = is_mixed | (table["conditions"] != table["conditions_base"])
    table["other_conditions"] = has_base & is_other
    table.loc[table["other_conditions"], ["speedup", "efficiency"]] = np.nan
    table.loc[table["mixed"], "over_best"] = np.nan
    return table.drop(columns=["index", *(f"{name}_base" for name in kept), "best", "mixed"])


def phase_shares(epochs: pd.DataFrame) -> pd.DataFrame:
    """Return the share of each phase in the training time, in 0..1, with warm-up."""
    phases = [name for name in epochs if name.endswith(PHASE)]
    sums = epochs.groupby(tidy.SPEED_SETTINGS, sort=False)[[*phases, "seconds"]].sum(min_count=1)
    shares = sums[phases].div(sums["seconds"], axis=0)
    return shares.rename(columns=lambda name: name.removesuffix(PHASE)).reset_index()


def sentences(speed_table: pd.DataFrame) -> Iterator[str]:
    """Yield what disturbed the timings."""
    if (speed_table["note"] == tidy.CONTENDED).any():
        yield (
            "Contended: for more than a tenth of the time, other processes used a run's cores. The "
            "measured speed is too low."
        )
    if any("packed" in conditions for conditions in speed_table["conditions"]):
        yield (
            "Runs were packed: a run on few cores was slowed down by its neighbours on the other "
            "cores; a run on all cores was not. This favours setups with many cores; `exclusive: "
            "true` times each run alone."
        )
