"""A study whose runs were packed onto the cores against one whose runs came one after the other."""

import pandas as pd

from allcores.analysis import comparison, metrics, occupancy, style, tidy
from allcores.analysis.html_table import TIMES, WHOLE, Number, number, seconds
from allcores.analysis.words.wording import differences, title_of

TITLE = "packed or one after the other"
SECTION = "speed"
WHEN = "against"
ORDER = 10
CAPTION = """
The runs of ``{study}``, packed onto the cores, against the same runs one after the other, with
the strategy, workers and threads in the column *one by one*; runs without a counterpart do not
count, except in *over bound*. *one by one seconds*: the sum of the runs' durations. *packed
seconds*: in the last row the makespan, the time from the first start to the last end, less the
share of runs without a counterpart; above it each group's share, by core-seconds, as the groups
ran at the same time. *one by one training*, *packed training* and *training speedup*: the same
of training alone, without start-up, evaluation and waiting: the sum of the training times one
after the other, and the packed runs' core-seconds of training divided by the cores.
*over bound*: makespan of all packed runs over the least possible, their
core-seconds divided by the cores. Start-up and evaluation count. *difference* and what follows
it: {metric} packed minus {metric} one after the other, paired by fold and seed, with Nadeau and
Bengio's corrected interval and p values corrected by Holm's method.
"""
# What one compares; the other columns are shown on request.
COMPARED = ("one_by_one_seconds", "packed_seconds", "speedup", "training_speedup", "finding")

SAME = ["dataset", "model", "schedule", "train_size", "strategy"]
ALL = "all together"


def table(runs, against_runs, facts):
    """One row per dataset, model, schedule, training-set size and strategy, and one for all.

    Args:
        runs, against_runs: one row per run; the latter ran one after the other. Runs without a
            counterpart in the other do not count, except in over_bound.

    One after the other, the total time of a group is the sum of its runs' durations, start-up and
    evaluation included. For all together, packed, it is the time from the first start to the last
    end, and for a group its share of that, by core-seconds, as the groups ran beside each other.
    over_bound is how much longer the packed runs took than their core-seconds divided by the cores.
    """
    packed, single = _with_durations(runs), _with_durations(against_runs)
    whole, core_seconds = occupancy.makespan(packed), packed["core_seconds"].sum()
    cores = occupancy.cores_there(packed)
    over_bound = whole / (core_seconds / cores)
    keys = [*SAME, *tidy.REPEAT]
    single, packed = single.merge(packed[keys]), packed.merge(single[keys])
    # Where some have no counterpart: the part of the time that is the others', by core-seconds.
    together = packed["core_seconds"].sum() / core_seconds * whole
    after, beside = single.groupby(SAME, sort=False), packed.groupby(SAME, sort=False)
    table = pd.DataFrame(
        {
            "runs": beside.size(),
            "one_by_one_seconds": after["duration"].sum(),
            "packed_seconds": beside["core_seconds"].sum() / core_seconds * whole,
            "one_by_one_training": after["training_seconds"].sum(),
            "packed_training": beside["training_core_seconds"].sum() / cores,
            f"one_by_one_{facts.metric.name}": after["score"].mean(),
            f"packed_{facts.metric.name}": beside["score"].mean(),
        }
    ).reset_index()
    different = comparison.compare(packed, single, SAME, facts.metric)
    found = ["pairs", "difference", "low", "high", "at_most", "p_corrected", "finding"]
    table = table.merge(different[[*SAME, *found]], on=SAME, how="left")
    training = ["one_by_one_training", "packed_training"]
    together = [ALL, len(packed), single["duration"].sum(), together, *table[training].sum()]
    table.loc[len(table), ["model", "runs", "one_by_one_seconds", "packed_seconds", *training]] = (
        together
    )
    table["runs"] = table["runs"].astype(int)
    table["speedup"] = table["one_by_one_seconds"] / table["packed_seconds"]
    table["training_speedup"] = table["one_by_one_training"] / table["packed_training"]
    table.loc[table["model"] == ALL, "over_bound"] = over_bound
    ways = dict.fromkeys(style.layout(row) for _, row in single.iterrows())
    return table.assign(one_by_one=" / ".join(ways))


def _with_durations(runs):
    duration = runs["lasted_seconds"]
    return runs.assign(
        duration=duration,
        core_seconds=duration * runs["cores"],
        training_core_seconds=runs["training_seconds"] * runs["cores"],
    )


def sentences(packing_table, facts):
    """Packed against one after the other."""
    is_whole = packing_table["over_bound"].notna()
    whole, parts = packing_table[is_whole].iloc[0], packing_table[~is_whole]
    each = "; ".join(
        f"{title_of(row, parts)}: {row['speedup']:.2f} x" for _, row in parts.iterrows()
    )
    yield (
        f"Packing {whole['runs']:.0f} runs onto the cores is {whole['speedup']:.2f} x as fast as "
        f"running them one after the other with {whole['one_by_one']}: "
        f"{whole['packed_seconds']:,.0f} s against {whole['one_by_one_seconds']:,.0f} s ({each})."
    )
    yield (
        "Of training alone, without start-up and evaluation, packing is "
        f"{whole['training_speedup']:.2f} x as fast: {whole['packed_training']:,.1f} s on all "
        f"cores against {whole['one_by_one_training']:,.1f} s."
    )
    yield (
        f"The packed runs took {whole['over_bound']:.2f} x the least possible, their core-seconds "
        "divided by the cores; start-up and evaluation count."
    )
    for model, group in parts.groupby("model", sort=False):
        yield from differences(
            group,
            f"{model}: {facts.metric} when packed",
            "one after the other",
            lambda row: f"{title_of(row, parts)}: {facts.metric} when packed",
            facts.metric,
        )


def formats(table):
    """Column -> html_table.Number."""
    written = dict.fromkeys(("one_by_one_seconds", "packed_seconds"), seconds(1))
    written |= dict.fromkeys(("one_by_one_training", "packed_training"), seconds(1))
    packed = "one_by_one_"
    (metric,) = metrics.columns(
        name.removeprefix(packed) for name in table if name.startswith(packed)
    )
    written |= dict.fromkeys((f"one_by_one_{metric.name}", f"packed_{metric.name}"), number(metric))
    written |= dict.fromkeys(("difference", "low", "high"), number(metric, "+"))
    written |= {"at_most": number(metric, "-")}
    written |= dict.fromkeys(("speedup", "training_speedup", "over_bound"), TIMES)
    return written | {"p_corrected": Number("{:.3f}"), "runs": WHOLE, "pairs": WHOLE}
