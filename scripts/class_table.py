"""Accuracy per class of every cell of a study, pooled over folds and seeds."""

from pathlib import Path

from allcores.analysis import tidy


def class_table(classes):
    """One row per cell, one column "class NAME" per class, from one row per run and class."""
    # Class names are texts, also where they look like numbers.
    classes = classes.assign(**{"class": classes["class"].astype(str)})
    sums = classes.groupby([*tidy.CELL, "class"], sort=False)[["correct", "samples"]].sum()
    accuracy = (sums["correct"] / sums["samples"]).unstack("class")
    order = classes["class"].drop_duplicates()
    # A class may be called like one of the other columns.
    named = accuracy[order].add_prefix(tidy.CLASS).reset_index()
    return tidy.ordered(classes).merge(named, on=tidy.CELL)


if __name__ == "__main__":
    table = class_table(tidy.read(snakemake.input.classes))
    table.to_csv(snakemake.output.csv, index=False)
    names = table.columns.difference(tidy.CELL, sort=False)
    formats = {"workers": str, "threads": str} | dict.fromkeys(names, "{:.1%}".format)
    Path(snakemake.output.html).write_text(tidy.html(table, formats))
