"""Elapsed training time by number of cores, beside times that others have published."""

from pathlib import Path

import pandas as pd

from allcores.analysis import style, tidy

MEASURED = [
    "cores",
    "seconds",
    "images",
    "per_1000",
    "images_per_second",
    "speedup",
    "efficiency",
    "over_best",
    "note",
]


def elapsed_table(speeds, references):
    """One row per way of using the cores and one per reference.

    per_1000 is seconds of training per 1,000 images, by which runs of different sizes compare.

    Args:
        speeds: the speed table.
        references: [{model, label, seconds, images, cores if known}, ...], as the config has them.
    """
    ours = speeds.assign(way=[style.way(row) for _, row in speeds.iterrows()])
    theirs = pd.DataFrame(references).rename(columns={"label": "way"})
    ours["per_1000"], theirs["per_1000"] = (
        1000 * table["seconds"] / table["images"] for table in (ours, theirs)
    )
    theirs["note"] = tidy.PUBLISHED
    table = pd.concat([ours[["model", "way", *MEASURED]], theirs], ignore_index=True)
    table["cores"] = table["cores"].astype("Int64")
    return table


if __name__ == "__main__":
    table = elapsed_table(tidy.read(snakemake.input.speeds), snakemake.params.references)
    table.to_csv(snakemake.output.csv, index=False)
    formats = {"cores": str, "images": "{:,.0f}".format, "images_per_second": "{:,.1f}".format}
    formats |= dict.fromkeys(("seconds", "per_1000"), "{:,.1f}".format)
    formats |= dict.fromkeys(("speedup", "over_best"), "{:.2f} x".format)
    formats |= {"efficiency": "{:.0%}".format}
    Path(snakemake.output.html).write_text(tidy.html(table, formats))
