"""Elapsed training time by number of cores, beside times that others have published."""

from pathlib import Path

import pandas as pd

from allcores import style, tables

MEASURED = ["cores", "seconds", "images_per_second", "speedup", "efficiency", "over_best", "note"]


def elapsed_table(speeds, references):
    """One row per way of using the cores and one per reference.

    Args:
        speeds: the speed table.
        references: [{model, label, seconds, cores if known}, ...], as the config has them.
    """
    ours = speeds.assign(way=[style.way(row) for _, row in speeds.iterrows()])
    theirs = pd.DataFrame(references).rename(columns={"label": "way"})
    theirs["note"] = "published elsewhere"
    table = pd.concat([ours[["model", "way", *MEASURED]], theirs], ignore_index=True)
    table["cores"] = table["cores"].astype("Int64")
    return table


if __name__ == "__main__":
    table = elapsed_table(pd.read_csv(snakemake.input.speeds), snakemake.params.references)
    table.to_csv(snakemake.output.csv, index=False)
    formats = {"cores": str, "seconds": "{:,.1f}".format, "images_per_second": "{:,.1f}".format}
    formats |= dict.fromkeys(("speedup", "over_best"), "{:.2f} x".format)
    formats |= {"efficiency": "{:.0%}".format}
    Path(snakemake.output.html).write_text(tables.html(table, formats))
