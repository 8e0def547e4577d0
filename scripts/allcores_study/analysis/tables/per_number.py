"""Scores of each of several predicted numbers."""

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
Scores of each predicted number on the test folds, averaged over folds and seeds. *r2*: the
coefficient of determination. *rmse*: the root of the mean squared error. *mae*: the mean absolute
error. The errors are in the number's unit. *r2* is empty if all true values in a test fold are
equal. The other tables show means over the numbers, for runs in which all scores are defined.
"""
SCORES = ["r2", "rmse", "mae"]
NUMBERS = dict.fromkeys(SCORES, Number("{:.4g}"))


def table(outputs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per combination of settings and number."""
    groups = outputs.groupby([*tidy.SETTINGS, "output"], sort=False)[SCORES]
    return groups.agg(lambda values: values.mean(skipna=False)).reset_index()
