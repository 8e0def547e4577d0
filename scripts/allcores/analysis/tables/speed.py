"""Images per second, speedup and efficiency of every way of using the cores."""

import numpy as np
import pandas as pd

from allcores.analysis import style, tidy
from allcores.analysis.html_table import TIMES, WHOLE, Number, percent, seconds
from allcores.analysis.words.wording import (
    base_of,
    by_model,
    count,
    mark,
    speedup_of,
    without_repeats,
)

TITLE = "speed"
SECTION = "speed"
ORDER = 20
CAPTION = """
Training speed of each way of using the cores; runs that differ in schedule, fold or seed are
repeats of one another. *seconds*: median training time of a whole run; *epoch seconds*: of an
epoch after the first. *images per second*: the median over runs, of the epochs after the first,
which is warm-up; *slowest* and *fastest*: their range. **Two baselines**: *speedup* is over
**{baseline} with its fewest cores**, for the same dataset, model and training-set size, and
*efficiency* is that divided by the ratio of cores; *over best* is over **the fastest that
{baseline} is with at most as many cores**, as threads. *utilisation*: share of its cores that a
run kept busy from its start to its end. *note*: rows with more processes than cores
(oversubscribed), whose cores others used for more than a tenth of the time (contended), or that
were timed under other *conditions* than the baseline (alone or packed, processor, torch), so
that no speedup is given. *sent mb*: megabytes from node to node per epoch. The last columns are
the shares of each phase in the training time of the first worker; ``ddp`` hides part of its
communication behind the computation, and only the rest counts as *communicate*. Unless the
study is ``exclusive``, other runs were at work on
other cores of the machine at the same time.
"""
# What one compares; the other columns are shown on request.
COMPARED = ("cores", "images_per_second", "speedup", "efficiency", "note")

PHASE = "_seconds"
# Bytes that an epoch's workers and servers sent from node to node.
SENT = "sent_between_nodes"


def table(runs, epochs, facts):
    """One row per dataset, model, strategy, nodes, workers, threads and training-set size.

    seconds: training time of a whole run, of so many images; epoch_seconds: of an epoch after the
    first. speedup: images per second over those of the baseline strategy with its fewest cores, on
    the same dataset, model and training-set size. efficiency: speedup per core, relative to it.
    over_best: images per second over the most that the baseline strategy reaches with at most as
    many cores, under the same conditions. speedup and efficiency are empty where the conditions
    (exclusive or packed, processor, torch) differ from the baseline's. utilisation: share of its
    cores that a run kept busy from its start to its end. sent_mb: megabytes that went from node to
    node in an epoch, in studies over several. The columns after `note` are the phases'
    shares of the training time, in 0..1.
    """
    speeds = tidy.timed(runs, epochs)
    allowed = speeds["machine_cores_allowed"] * speeds["nodes"]
    available = speeds["lasted_seconds"] * np.minimum(speeds["cores"], allowed)
    table = (
        speeds.assign(
            utilisation=speeds["cpu_seconds"] / available,
            images=speeds["train_samples"] * speeds["epochs"],
            conditions=tidy.conditions(speeds),
            allowed=allowed,
        )
        .groupby([*tidy.SPEED_CELL, "cores"], sort=False)
        .agg(
            runs=("seed", "size"),
            seconds=("training_seconds", "median"),
            images=("images", "median"),
            epoch_seconds=("epoch_seconds", "median"),
            images_per_second=("images_per_second", "median"),
            slowest=("images_per_second", "min"),
            fastest=("images_per_second", "max"),
            utilisation=("utilisation", "median"),
            contended=("contended", "any"),
            allowed=("allowed", "min"),
            conditions=("conditions", lambda found: " / ".join(sorted(set(found)))),
        )
        .reset_index()
    )
    if SENT in epochs:
        sent = epochs.groupby(tidy.SPEED_CELL)[SENT].mean().div(1e6).rename("sent_mb")
        table = table.merge(sent.reset_index(), on=tidy.SPEED_CELL)
    table = against_baseline(table, facts.baseline)
    crowded = table["cores"] > table["allowed"]
    table["note"] = np.select(
        [table["otherwise"], crowded, table["contended"]],
        [tidy.OTHERWISE, "oversubscribed", "contended"],
        default="",
    )
    return table.drop(columns=["contended", "allowed", "otherwise"]).merge(
        phase_shares(epochs), on=tidy.SPEED_CELL
    )


def against_baseline(table, baseline):
    """The table with the columns speedup, efficiency, over_best and otherwise.

    otherwise: bool, whether speedup and efficiency are empty because the conditions differ from
    the baseline's.
    """
    group = ["dataset", "model", "train_size"]
    ours = table[table["strategy"] == baseline].sort_values("cores")
    base = ours.drop_duplicates(group)[[*group, "cores", "images_per_second", "conditions"]]
    alike = ours.groupby([*group, "conditions"])["images_per_second"]
    best = ours.assign(best=alike.cummax())
    table = table.merge(base, on=group, how="left", suffixes=("", "_base"))
    # For each row the last row of the baseline, under its conditions, of at most as many cores.
    table = pd.merge_asof(
        table.reset_index().sort_values("cores"),
        best[[*group, "conditions", "cores", "best"]],
        on="cores",
        by=[*group, "conditions"],
    ).sort_values("index", ignore_index=True)
    speed = table["images_per_second"]
    table["speedup"] = speed / table["images_per_second_base"]
    table["efficiency"] = table["speedup"] * table["cores_base"] / table["cores"]
    table["over_best"] = speed / table["best"]
    has_base = table["conditions_base"].notna()
    table["otherwise"] = has_base & (table["conditions"] != table["conditions_base"])
    table.loc[table["otherwise"], ["speedup", "efficiency"]] = np.nan
    bases = ["cores_base", "images_per_second_base", "conditions_base"]
    return table.drop(columns=["index", *bases, "best"])


def phase_shares(epochs):
    """Share of each phase in the training time of each SPEED_CELL, in 0..1, warm-up included."""
    phases = [name for name in epochs if name.endswith(PHASE)]
    sums = epochs.groupby(tidy.SPEED_CELL, sort=False)[[*phases, "seconds"]].sum(min_count=1)
    shares = sums[phases].div(sums["seconds"], axis=0)
    return shares.rename(columns=lambda name: name.removesuffix(PHASE)).reset_index()


def sentences(speed_table, facts):
    """Every way for each model, the fastest first."""
    single = []
    for names, group in by_model(speed_table):
        group = group.sort_values("images_per_second", ascending=False)
        base = base_of(group, facts)
        if base is None:
            ways = "; ".join(
                f"{style.layout(row)}: {row['images_per_second']:,.1f} images/s{mark(row)}"
                for _, row in group.iterrows()
            )
            yield f"{names}, without {facts.baseline} to judge them by: {ways}."
            continue
        if len(group) == 1:
            single += [
                f"{names}, {style.layout(row)}: {row['images_per_second']:,.1f} images/s{mark(row)}"
                for _, row in group.iterrows()
            ]
            continue
        listed = "; ".join(
            f"{style.layout(row)} {speedup_of(row)}{mark(row)}"
            for _, row in group.drop(index=base.name).iterrows()
        )
        yield (
            f"{names}, images per second relative to {style.layout(base)}{mark(base)} "
            f"({base['images_per_second']:,.1f}): {listed}."
        )
        yield from _fastest(names, without_repeats(group, base), facts)
    if single:
        yield (
            f"{'; '.join(single)}. With one way of using the cores there is nothing to compare "
            "within this study."
        )
    if (speed_table["note"] == "contended").any():
        yield (
            "Contended: others were at work for more than a tenth of the time of a run's cores, or "
            "its threads waited that long for a core; its speed is too low."
        )
    if any("packed" in conditions for conditions in speed_table["conditions"]):
        yield (
            "Runs were packed: one on few cores had neighbours at work on the others, which slow "
            "it down; one on all cores had none. That leans towards the ways with many cores; "
            "`exclusive: true` times each run alone."
        )


def _fastest(names, group, facts):
    """The fastest way against the best that the baseline reaches on as many cores.

    Args:
        group: its ways, the fastest first.
    """
    best = group[group["note"] != tidy.OTHERWISE].iloc[0]
    rivals = group[(group["strategy"] == facts.baseline) & (group["cores"] <= best["cores"])]
    rivals = rivals[rivals["conditions"] == best["conditions"]]
    if best["strategy"] == facts.baseline or rivals.empty or pd.isna(best["over_best"]):
        return
    rival = rivals.iloc[0]
    unsure = "" if best["slowest"] > rival["fastest"] else ", which overlap"
    if min(best["runs"], rival["runs"]) == 1:
        unsure = ", too few runs"
    yield (
        f"{names}: fastest is {style.layout(best)}{mark(best)}, {best['over_best']:.2f} x the "
        f"best of {facts.baseline} on at most as many cores, {style.layout(rival)}: {_range(best)} "
        f"against {_range(rival)}{unsure and f'{unsure}: they cannot be told apart'}."
    )


def _range(row):
    return f"{row['slowest']:,.1f} to {row['fastest']:,.1f} images/s in {count(row['runs'], 'run')}"


def formats(table):
    """Column -> html_table.Number."""
    written = dict.fromkeys(("nodes", "workers", "cores", "runs", "images"), WHOLE)
    written |= {"sent_mb": Number("{:,.2f}", "MB")}
    rates = dict.fromkeys(
        ("images_per_second", "slowest", "fastest"), Number("{:,.1f}", "images/s")
    )
    written |= rates | {"seconds": seconds(2), "epoch_seconds": seconds(3)}
    written |= dict.fromkeys(("speedup", "over_best"), TIMES)
    shares = table.columns[list(table.columns).index("note") + 1 :]
    return written | dict.fromkeys(["utilisation", "efficiency", *shares], percent(0))
