"""How the time of an epoch grows with the number of training samples: a fitted line."""

from __future__ import annotations

import pandas as pd
from scipy import stats

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import Number, seconds

TITLE = "epoch time by training-set size"
CAPTION = """
Epoch time as a linear function of the number of training samples: seconds = intercept + slope x
samples. It is fitted by least squares to the median epoch of each run, without the first epoch,
which is warm-up. *seconds per 1000*: the slope, for 1,000 samples. *intercept seconds*: the fixed
cost of an epoch, however few samples it has. *slope error*, *intercept error*: standard errors.
"""
# Columns shown at first; a button shows the others.
COMPARED = ("seconds_per_1000", "slope_error", "intercept_seconds", "intercept_error")

FITTED = ["runs", "seconds_per_1000", "slope_error", "intercept_seconds", "intercept_error"]
FITTED += ["r_squared"]
# Columns that this table formats differently from wording.NUMBERS.
NUMBERS = {
    **dict.fromkeys(("seconds_per_1000", "intercept_seconds"), seconds(3)),
    **dict.fromkeys(("slope_error", "intercept_error"), Number("± {:.3f}", "s")),
    "r_squared": Number("{:.4f}"),
}


def table(epochs: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame | None:
    """Return one row per dataset, model and setup: seconds = intercept + slope x samples."""
    if runs["train_size"].nunique() < 2:
        return None
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
