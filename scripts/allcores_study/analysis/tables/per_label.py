"""Scores of each of several labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.analysis import tidy
from allcores_study.analysis.wording import percent

if TYPE_CHECKING:
    import pandas as pd

TITLE = "scores per label"
SECTION = "{metric}"
WHEN = "labels"
ORDER = 67
CAPTION = """
Precision, recall and F1 of each label on the test folds, averaged over folds and seeds.
*precision*: the share of the samples predicted to have the label that do have it. *recall*: the
share of the samples with the label that are predicted to have it. *f1*: the harmonic mean of the
two. Each is 0 if no sample has the label or none is predicted to have it.
"""
SCORES = ["f1", "precision", "recall"]
NUMBERS = dict.fromkeys(SCORES, percent(1))


def table(outputs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per combination of settings and label."""
    return outputs.groupby([*tidy.SETTINGS, "output"], sort=False)[SCORES].mean().reset_index()
