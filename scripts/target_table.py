"""After how many epochs, and how many seconds of training, a run reaches an accuracy."""

from pathlib import Path

from allcores.analysis import tidy


def reached(epochs, target):
    """One row per run: the first epoch with at least that held-out accuracy, and the seconds of
    training until its end; both empty if there was none."""
    epochs = tidy.with_elapsed(epochs)
    first = epochs[epochs["accuracy"] >= target].drop_duplicates(tidy.RUN)
    every = epochs[tidy.RUN].drop_duplicates()
    return every.merge(first[[*tidy.RUN, "epoch", "elapsed"]], how="left", on=tidy.RUN)


def target_table(epochs, target):
    """One row per cell: medians over the runs that reached the target."""
    return (
        reached(epochs, target)
        .groupby(tidy.CELL, sort=False)
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
    table = target_table(tidy.read(snakemake.input.epochs), snakemake.params.target)
    table.to_csv(snakemake.output.csv, index=False)
    formats = dict.fromkeys(("workers", "threads", "runs", "reached"), str)
    formats |= {"epochs": "{:g}".format}
    formats |= dict.fromkeys(("seconds", "fastest", "slowest"), "{:,.2f}".format)
    Path(snakemake.output.html).write_text(tidy.html(table, formats))
