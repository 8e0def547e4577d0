"""Accuracy of every cell of a study: mean, spread and 95 % interval over folds and seeds."""

from pathlib import Path

from allcores.analysis import comparison, tidy

PERCENT = "{:.2%}".format
SECONDS = "{:,.2f}".format


def accuracy_table(runs):
    """One row per cell, from one row per run; accuracy is that of the runs that did not diverge."""
    groups = runs.groupby(tidy.CELL, sort=False)
    table = groups.agg(
        runs=("accuracy", "size"),
        diverged=("diverged", "count"),
        accuracy=("accuracy", "mean"),
        standard_deviation=("accuracy", "std"),
        seconds=("training_seconds", "mean"),
        core_seconds=("core_seconds", "mean"),
    ).reset_index()
    table.insert(
        table.columns.get_loc("seconds"),
        "interval_95",
        [comparison.interval(cell) for _, cell in groups],
    )
    return table


if __name__ == "__main__":
    runs = tidy.read(snakemake.input.runs)
    runs["core_seconds"] = runs["training_seconds"] * runs["cores"]
    table = accuracy_table(runs)
    table.to_csv(snakemake.output.csv, index=False)
    formats = {
        "workers": str,
        "threads": str,
        "runs": str,
        "diverged": str,
        "accuracy": PERCENT,
        "standard_deviation": PERCENT,
        "interval_95": "± {:.2%}".format,
        "seconds": SECONDS,
        "core_seconds": SECONDS,
    }
    Path(snakemake.output.html).write_text(tidy.html(table, formats))
