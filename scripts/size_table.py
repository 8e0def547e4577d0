"""How the time of an epoch grows with the number of training samples: a fitted line."""

from pathlib import Path

import pandas as pd
from scipy import stats

from allcores.analysis import tidy

FITTED = ["runs", "seconds_per_1000", "slope_error", "intercept_seconds", "intercept_error"]
FITTED += ["r_squared"]


def size_table(timed):
    """One row per dataset, model and way of using the cores: seconds = intercept + slope x samples.

    Args:
        timed: one row per run, from tidy.timed().
    """
    rows = []
    for way, runs in timed.groupby(tidy.WAY, sort=False):
        if runs["train_samples"].nunique() < 2:  # no line goes through one size
            continue
        line = stats.linregress(runs["train_samples"], runs["epoch_seconds"])
        rows.append(
            dict(zip(tidy.WAY, way, strict=True))
            | {
                "runs": len(runs),
                "seconds_per_1000": 1000 * line.slope,
                "slope_error": 1000 * line.stderr,
                "intercept_seconds": line.intercept,
                "intercept_error": line.intercept_stderr,
                "r_squared": line.rvalue**2,
            }
        )
    return pd.DataFrame(rows, columns=[*tidy.WAY, *FITTED])


if __name__ == "__main__":
    table = size_table(
        tidy.timed(tidy.read(snakemake.input.runs), tidy.read(snakemake.input.epochs))
    )
    table.to_csv(snakemake.output.csv, index=False)
    formats = dict.fromkeys(("workers", "threads", "runs"), str)
    formats |= dict.fromkeys(("seconds_per_1000", "intercept_seconds"), "{:.3f}".format)
    formats |= dict.fromkeys(("slope_error", "intercept_error"), "± {:.3f}".format)
    formats |= {"r_squared": "{:.4f}".format}
    Path(snakemake.output.html).write_text(tidy.html(table, formats))
