"""Scores of each of several labels, predicted numbers or classes of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import Number, percent

if TYPE_CHECKING:
    import pandas as pd

TITLE = "scores per output"
CAPTION = """
Scores of each label, number or class of pixels on the test folds, averaged over folds and seeds.
Labels: *precision* is the share of the samples predicted to have the label that do have it,
*recall* the share of the samples with the label that are predicted to have it, *f1* the harmonic
mean of the two. Each is 0 if no sample has the label or none is predicted to have it. Numbers: *r2*
is the coefficient of determination, empty if all true values in a test fold are equal; *rmse* and
*mae* are the root of the mean squared error and the mean absolute error, in the number's unit.
Classes of pixels: *iou* is the pixels that belong to the class and are predicted to, divided by
those that do either; *dice* is twice the former, divided by the sum of those that belong to the
class and of those that are predicted to; *accuracy* is the share of the pixels of the class that
are predicted to belong to it. A fold without such pixels, true or predicted, does not count.
"""
IN_UNITS = ["r2", "rmse", "mae"]
SCORES = ["f1", "precision", "recall", *IN_UNITS, "iou", "dice", "accuracy"]
NUMBERS = dict.fromkeys(SCORES, percent(1)) | dict.fromkeys(IN_UNITS, Number("{:.4g}"))


def table(outputs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per combination of settings and output, with the scores of its kind."""
    scores = [name for name in SCORES if name in outputs]
    groups = outputs.astype(dict.fromkeys(scores, float)).groupby(
        [*tidy.SETTINGS, "output"], sort=False
    )[scores]
    skips = not {*IN_UNITS} & {*scores}
    return groups.agg(lambda values: values.mean(skipna=skips)).reset_index()
