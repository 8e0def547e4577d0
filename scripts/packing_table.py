"""A study whose runs were packed onto the cores against one whose runs came one after the other."""

from pathlib import Path

import pandas as pd

from allcores import comparison, occupancy, tables

SAME = ["dataset", "model", "schedule", "train_size", "strategy"]
ALL = "all together"


def packing_table(packed, single):
    """One row per dataset, model, schedule, training-set size and strategy, and one for all.

    Args:
        packed, single: one row per run; those of `single` came one after the other.

    The total time of a group is, one after the other, the sum of its runs' durations, start-up and
    evaluation included; packed, its core-seconds divided by the cores of the machine, as the groups
    ran beside each other. For all together it is the time from the first start to the last end;
    over_bound is how much longer that is than the core-seconds divided by the cores.
    """
    cores = packed["machine_cores_allowed"].max()
    held = [_with_durations(frame).groupby(SAME, sort=False) for frame in (single, packed)]
    table = pd.DataFrame(
        {
            "runs": held[1].size(),
            "one_by_one_seconds": held[0]["duration"].sum(),
            "packed_seconds": held[1]["core_seconds"].sum() / cores,
            "one_by_one_accuracy": held[0]["accuracy"].mean(),
            "packed_accuracy": held[1]["accuracy"].mean(),
        }
    ).reset_index()
    different = comparison.compare(packed, single, SAME)
    found = ["pairs", "difference", "low", "high", "at_most", "p_corrected", "finding"]
    table = table.merge(different[[*SAME, *found]], on=SAME, how="left")
    whole = occupancy.makespan(packed)
    table.loc[len(table), ["model", "runs", "one_by_one_seconds", "packed_seconds"]] = [
        *(ALL, len(packed), occupancy.makespan(single), whole)
    ]
    table["runs"] = table["runs"].astype(int)
    table["speedup"] = table["one_by_one_seconds"] / table["packed_seconds"]
    table["over_bound"] = float("nan")
    bound = _with_durations(packed)["core_seconds"].sum() / cores
    table.loc[table["model"] == ALL, "over_bound"] = whole / bound
    return table


def _with_durations(runs):
    duration = runs["ended"] - runs["started"]
    return runs.assign(duration=duration, core_seconds=duration * runs["cores"])


if __name__ == "__main__":
    table = packing_table(pd.read_csv(snakemake.input.packed), pd.read_csv(snakemake.input.single))
    table.to_csv(snakemake.output.csv, index=False)
    formats = dict.fromkeys(("one_by_one_seconds", "packed_seconds"), "{:,.1f}".format)
    formats |= dict.fromkeys(("one_by_one_accuracy", "packed_accuracy", "at_most"), "{:.2%}".format)
    formats |= dict.fromkeys(("difference", "low", "high"), "{:+.2%}".format)
    formats |= dict.fromkeys(("speedup", "over_bound"), "{:.2f} x".format)
    formats |= {"p_corrected": "{:.3f}".format, "runs": str}
    Path(snakemake.output.html).write_text(tables.html(table, formats))
