"""Images per second, speedup and efficiency of every way of using the cores."""

from pathlib import Path

import numpy as np
import pandas as pd

from allcores.analysis import tidy

PHASE = "_seconds"


def speed_table(runs, epochs, baseline):
    """One row per dataset, model, strategy, workers, threads and training-set size.

    seconds: training time of a whole run, of so many images; epoch_seconds: of an epoch after the
    first. speedup: images per second over those of the baseline strategy with its fewest cores, on
    the same dataset, model and training-set size. efficiency: speedup per core, relative to it.
    over_best: images per second over the most that the baseline strategy reaches with at most as
    many cores, under the same conditions. speedup and efficiency are empty where the conditions are
    not the baseline's: alone on the machine or packed, processor, torch. utilisation: share of its
    cores that a run kept busy from its start to its end. The columns after `note` are each phase's
    share of the time.
    """
    speeds = tidy.timed(runs, epochs)
    cores = speeds[["cores", "machine_cores_allowed"]].min(axis=1)
    available = speeds["lasted_seconds"] * cores
    table = (
        speeds.assign(
            utilisation=speeds["cpu_seconds"] / available,
            images=speeds["train_samples"] * speeds["epochs"],
            conditions=tidy.conditions(speeds),
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
            allowed=("machine_cores_allowed", "min"),
            conditions=("conditions", lambda found: " / ".join(sorted(set(found)))),
        )
        .reset_index()
    )
    table = against_baseline(table, baseline)
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
    """The table with the columns speedup, efficiency, over_best, and otherwise: whether these are
    empty because the conditions were others."""
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
    """Share of each phase in the training time of each cell."""
    phases = [name for name in epochs if name.endswith(PHASE)]
    sums = epochs.groupby(tidy.SPEED_CELL, sort=False)[[*phases, "seconds"]].sum(min_count=1)
    shares = sums[phases].div(sums["seconds"], axis=0)
    return shares.rename(columns=lambda name: name.removesuffix(PHASE)).reset_index()


if __name__ == "__main__":
    table = speed_table(
        tidy.read(snakemake.input.runs),
        tidy.read(snakemake.input.epochs),
        snakemake.params.baseline,
    )
    table.to_csv(snakemake.output.csv, index=False)
    times = "{:.2f} x".format
    formats = dict.fromkeys(("workers", "threads", "cores", "runs"), str)
    formats |= dict.fromkeys(("images_per_second", "slowest", "fastest"), "{:,.1f}".format)
    formats |= {
        "seconds": "{:,.2f}".format,
        "epoch_seconds": "{:.3f}".format,
        "speedup": times,
        "over_best": times,
    }
    shares = table.columns[list(table.columns).index("note") + 1 :]
    formats |= dict.fromkeys(["utilisation", "efficiency", *shares], "{:.0%}".format)
    Path(snakemake.output.html).write_text(tidy.html(table, formats))
