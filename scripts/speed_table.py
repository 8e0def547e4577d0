"""Images per second, speedup and efficiency of every way of using the cores."""

from pathlib import Path

import pandas as pd

from allcores import tables

# The schedule does not change the speed: runs that differ in it are repeats.
CELL = [column for column in tables.CELL if column != "schedule"]
RUN = [*tables.CELL, *tables.REPEAT]
PHASE = "_seconds"


def images_per_second(runs, epochs):
    """Of each run; its first epoch is warm-up and left out, unless it is the only one."""
    measured = epochs[(epochs["epoch"] > 1) | (epochs.groupby(RUN)["epoch"].transform("max") == 1)]
    per_epoch = measured.groupby(RUN, sort=False)["seconds"].mean()
    merged = runs.merge(per_epoch.rename("epoch_seconds"), on=RUN)
    return merged.assign(images_per_second=merged["train_samples"] / merged["epoch_seconds"])


def speed_table(runs, epochs, baseline):
    """One row per dataset, model, strategy, workers, threads and training-set size.

    speedup: images per second over those of the baseline strategy with its fewest cores, on the
    same dataset, model and training-set size. efficiency: speedup per core, relative to it.
    The columns after it are each phase's share of the time.
    """
    speeds = images_per_second(runs, epochs)
    table = (
        speeds.groupby([*CELL, "cores"], sort=False)["images_per_second"]
        .agg(runs="size", images_per_second="median", slowest="min", fastest="max")
        .reset_index()
    )
    group = ["dataset", "model", "train_size"]
    base = table[table["strategy"] == baseline].sort_values("cores").drop_duplicates(group)
    base = base.rename(columns={"images_per_second": "base_speed", "cores": "base_cores"})
    table = table.merge(base[[*group, "base_speed", "base_cores"]], on=group, how="left")
    table["speedup"] = table["images_per_second"] / table["base_speed"]
    table["efficiency"] = table["speedup"] * table["base_cores"] / table["cores"]
    return table.drop(columns=["base_speed", "base_cores"]).merge(phase_shares(epochs), on=CELL)


def phase_shares(epochs):
    """Share of each phase in the training time of each cell."""
    phases = [name for name in epochs if name.endswith(PHASE)]
    sums = epochs.groupby(CELL, sort=False)[[*phases, "seconds"]].sum(min_count=1)
    shares = sums[phases].div(sums["seconds"], axis=0)
    return shares.rename(columns=lambda name: name.removesuffix(PHASE)).reset_index()


if __name__ == "__main__":
    table = speed_table(
        pd.read_csv(snakemake.input.runs),
        pd.read_csv(snakemake.input.epochs),
        snakemake.params.baseline,
    )
    table.to_csv(snakemake.output.csv, index=False)
    rate = "{:,.0f}".format
    percent = "{:.0%}".format
    formats = dict.fromkeys(("workers", "threads", "cores", "runs"), str)
    formats |= dict.fromkeys(("images_per_second", "slowest", "fastest"), rate)
    formats |= {"speedup": "{:.2f} x".format}
    formats |= dict.fromkeys(table.columns[list(table.columns).index("efficiency") :], percent)
    Path(snakemake.output.html).write_text(tables.html(table, formats))
