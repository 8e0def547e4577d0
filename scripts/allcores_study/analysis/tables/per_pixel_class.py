"""Scores of each class of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import percent

if TYPE_CHECKING:
    import pandas as pd

TITLE = "scores per class of pixels"
SECTION = "{metric}"
WHEN = "pixels"
ORDER = 68
CAPTION = """
IoU, Dice and accuracy of each class of pixels on the test folds, averaged over folds and seeds.
*iou*: the pixels that belong to the class and are predicted to, divided by those that do either.
*dice*: twice the pixels that belong to the class and are predicted to, divided by the sum of those
that belong to it and of those that are predicted to. *accuracy*: the share of the pixels of the
class that are predicted to belong to it. A fold without such pixels, true or predicted, does not
count.
"""
SCORES = ["iou", "dice", "accuracy"]
NUMBERS = dict.fromkeys(SCORES, percent(1))


def table(outputs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per combination of settings and class."""
    scores = outputs.astype(dict.fromkeys(SCORES, float))
    return scores.groupby([*tidy.SETTINGS, "output"], sort=False)[SCORES].mean().reset_index()
