"""How well each of several numbers is predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import Number

if TYPE_CHECKING:
    import pandas as pd

TITLE = "scores per number"
SECTION = "{metric}"
WHEN = "several_numbers"
ORDER = 63
CAPTION = """
Of each number that is predicted the mean over folds and seeds of *r2*, the coefficient of
determination, *rmse*, the root of the mean squared error, and *mae*, the mean absolute error, in
the number's unit; *r2* is empty where true values are all equal in one of them. The scores of the
other tables are means over the numbers, of runs in which all are defined.
"""
SCORES = ["r2", "rmse", "mae"]
NUMBERS = dict.fromkeys(SCORES, Number("{:.4g}"))


def table(outputs: pd.DataFrame) -> pd.DataFrame:
    """One row per combination of settings and number."""
    groups = outputs.groupby([*tidy.SETTINGS, "output"], sort=False)[SCORES]
    return groups.agg(lambda values: values.mean(skipna=False)).reset_index()
