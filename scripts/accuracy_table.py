"""Accuracy of every cell of a study: mean, spread and 95 % interval over folds and seeds."""

from pathlib import Path

import pandas as pd

from allcores import metrics, tables

PERCENT = "{:.2%}".format
SECONDS = "{:,.2f}".format


def accuracy_table(runs):
    """One row per cell, from one row per run."""
    groups = runs.groupby(tables.CELL, sort=False)
    return groups.agg(
        runs=("accuracy", "size"),
        accuracy=("accuracy", "mean"),
        standard_deviation=("accuracy", "std"),
        interval_95=("accuracy", metrics.interval),
        seconds=("training_seconds", "mean"),
        core_seconds=("core_seconds", "mean"),
    ).reset_index()


if __name__ == "__main__":
    runs = pd.read_csv(snakemake.input.runs)
    runs["core_seconds"] = runs["training_seconds"] * runs["cores"]
    table = accuracy_table(runs)
    table.to_csv(snakemake.output.csv, index=False)
    formats = {
        "workers": str,
        "threads": str,
        "runs": str,
        "accuracy": PERCENT,
        "standard_deviation": PERCENT,
        "interval_95": "± {:.2%}".format,
        "seconds": SECONDS,
        "core_seconds": SECONDS,
    }
    Path(snakemake.output.html).write_text(tables.html(table, formats))
