"""After how many epochs, and how many seconds of training, a run reaches an accuracy."""

from pathlib import Path

from allcores import tables


def reached(epochs, target):
    """One row per run: the first epoch with at least that held-out accuracy, and the seconds of
    training until its end; both empty if there was none."""
    epochs = tables.with_elapsed(epochs)
    first = epochs[epochs["accuracy"] >= target].drop_duplicates(tables.RUN)
    every = epochs[tables.RUN].drop_duplicates()
    return every.merge(first[[*tables.RUN, "epoch", "elapsed"]], how="left", on=tables.RUN)


def target_table(epochs, target):
    """One row per cell: medians over the runs that reached the target."""
    return (
        reached(epochs, target)
        .groupby(tables.CELL, sort=False)
        .agg(
            runs=("seed", "size"),
            reached=("epoch", "count"),
            epochs=("epoch", "median"),
            seconds=("elapsed", "median"),
            fastest=("elapsed", "min"),
            slowest=("elapsed", "max"),
        )
        .reset_index()
    )


if __name__ == "__main__":
    table = target_table(tables.read(snakemake.input.epochs), snakemake.params.target)
    table.to_csv(snakemake.output.csv, index=False)
    formats = dict.fromkeys(("workers", "threads", "runs", "reached"), str)
    formats |= {"epochs": "{:g}".format}
    formats |= dict.fromkeys(("seconds", "fastest", "slowest"), "{:,.2f}".format)
    Path(snakemake.output.html).write_text(tables.html(table, formats))
