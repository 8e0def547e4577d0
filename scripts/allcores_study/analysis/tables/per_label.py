"""How well each of several labels is predicted."""

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
Of each label the mean over folds and seeds of *precision*, the share of samples that are told to
have it and do, *recall*, the share of samples that have it and are told to, and *f1*, the harmonic
mean of the two; each is 0 where nothing is told to have it, or nothing has.
"""
SCORES = ["f1", "precision", "recall"]
NUMBERS = dict.fromkeys(SCORES, percent(1))


def table(outputs: pd.DataFrame) -> pd.DataFrame:
    """One row per combination of settings and label."""
    return outputs.groupby([*tidy.SETTINGS, "output"], sort=False)[SCORES].mean().reset_index()
