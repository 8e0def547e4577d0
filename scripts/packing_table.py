"""A study whose runs were packed onto the cores against one whose runs came one after the other."""

from pathlib import Path

import pandas as pd

from allcores.analysis import comparison, occupancy, style, tidy

SAME = ["dataset", "model", "schedule", "train_size", "strategy"]
ALL = "all together"


def packing_table(packed, single):
    """One row per dataset, model, schedule, training-set size and strategy, and one for all.

    Args:
        packed, single: one row per run; those of `single` came one after the other. Of both, the
            ones that the other has no counterpart of do not count.

    One after the other, the total time of a group is the sum of its runs' durations, start-up and
    evaluation included. For all together, packed, it is the time from the first start to the last
    end, and for a group its share of that, by core-seconds, as the groups ran beside each other.
    over_bound is how much longer the packed runs took than their core-seconds divided by the cores.
    """
    packed, single = _with_durations(packed), _with_durations(single)
    whole, core_seconds = occupancy.makespan(packed), packed["core_seconds"].sum()
    over_bound = whole / (core_seconds / occupancy.cores_there(packed))
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
            "one_by_one_accuracy": after["accuracy"].mean(),
            "packed_accuracy": beside["accuracy"].mean(),
        }
    ).reset_index()
    different = comparison.compare(packed, single, SAME)
    found = ["pairs", "difference", "low", "high", "at_most", "p_corrected", "finding"]
    table = table.merge(different[[*SAME, *found]], on=SAME, how="left")
    table.loc[len(table), ["model", "runs", "one_by_one_seconds", "packed_seconds"]] = [
        *(ALL, len(packed), single["duration"].sum(), together)
    ]
    table["runs"] = table["runs"].astype(int)
    table["speedup"] = table["one_by_one_seconds"] / table["packed_seconds"]
    table.loc[table["model"] == ALL, "over_bound"] = over_bound
    ways = dict.fromkeys(style.way(row) for _, row in single.iterrows())
    return table.assign(one_by_one=" / ".join(ways))


def _with_durations(runs):
    duration = runs["lasted_seconds"]
    return runs.assign(duration=duration, core_seconds=duration * runs["cores"])


if __name__ == "__main__":
    table = packing_table(tidy.read(snakemake.input.packed), tidy.read(snakemake.input.single))
    table.to_csv(snakemake.output.csv, index=False)
    formats = dict.fromkeys(("one_by_one_seconds", "packed_seconds"), "{:,.1f}".format)
    formats |= dict.fromkeys(("one_by_one_accuracy", "packed_accuracy", "at_most"), "{:.2%}".format)
    formats |= dict.fromkeys(("difference", "low", "high"), "{:+.2%}".format)
    formats |= dict.fromkeys(("speedup", "over_bound"), "{:.2f} x".format)
    formats |= {"p_corrected": "{:.3f}".format, "runs": str, "pairs": "{:.0f}".format}
    Path(snakemake.output.html).write_text(tidy.html(table, formats))
