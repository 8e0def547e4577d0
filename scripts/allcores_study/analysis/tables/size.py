"""How the time of an epoch grows with the number of training samples: a fitted line."""

from __future__ import annotations

import pandas as pd
from scipy import stats

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import Number, seconds

TITLE = "epoch time by training-set size"
SECTION = "speed"
WHEN = "several_sizes"
ORDER = 50
CAPTION = """
Least-squares line through the median epoch times of all runs, the first epoch (warm-up) left out:
seconds = intercept + slope x samples, each with its standard error. The intercept is the fixed
cost of an epoch however few samples it has.
"""
# Columns to compare, shown at first; the others are shown on request.
COMPARED = ("seconds_per_1000", "slope_error", "intercept_seconds", "intercept_error")

FITTED = ["runs", "seconds_per_1000", "slope_error", "intercept_seconds", "intercept_error"]
FITTED += ["r_squared"]
# Columns of this table that are written otherwise than those of wording.NUMBERS.
NUMBERS = {
    **dict.fromkeys(("seconds_per_1000", "intercept_seconds"), seconds(3)),
    **dict.fromkeys(("slope_error", "intercept_error"), Number("± {:.3f}", "s")),
    "r_squared": Number("{:.4f}"),
}


def table(epochs: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """One row per dataset, model and setup: seconds = intercept + slope x samples."""
    rows = []
    for setup, timed in tidy.timed(runs, epochs).groupby(tidy.SETUP, sort=False):
        if timed["train_samples"].nunique() < 2:  # a line needs two sizes
            continue
        line = stats.linregress(timed["train_samples"], timed["epoch_seconds"])
        rows.append(
            dict(zip(tidy.SETUP, setup, strict=True))
            | {
                "runs": len(timed),
                "seconds_per_1000": 1000 * line.slope,
                "slope_error": 1000 * line.stderr,
                "intercept_seconds": line.intercept,
                "intercept_error": line.intercept_stderr,
                "r_squared": line.rvalue**2,
            }
        )
    return pd.DataFrame(rows, columns=[*tidy.SETUP, *FITTED])
