"""How well the pixels of each class are found."""

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
Of the pixels of each class in the held-out images, the mean over folds and seeds of *iou*, those
that are of it and are told to be, divided by those that are one of both, and *accuracy*, the share
of its pixels that are told to be of it. A fold without such pixels, true or told, does not count.
"""
SCORES = ["iou", "accuracy"]
NUMBERS = dict.fromkeys(SCORES, percent(1))


def table(outputs: pd.DataFrame) -> pd.DataFrame:
    """One row per combination of settings and class."""
    scores = outputs.astype(dict.fromkeys(SCORES, float))
    return scores.groupby([*tidy.SETTINGS, "output"], sort=False)[SCORES].mean().reset_index()
