"""Does the leading metric differ from the baseline's, and by how much at most?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.analysis import comparison

if TYPE_CHECKING:
    import pandas as pd

    from allcores_study.analysis.products import StudyFacts

TITLE = "does {metric} differ?"
SECTION = "{metric}"
ORDER = 60
CAPTION = """
{metric} on the test folds minus that of **{base}**, paired by fold and seed. *low*, *high*: the 95
% interval of the mean difference, not corrected for multiple comparisons. *at most*: the distance
from 0 of *low* or *high*, whichever is larger. *p*: Nadeau and Bengio's corrected resampled t-test,
which allows for folds that share training samples. *p corrected*: by Holm's method for all
comparisons in this table. A difference is significant if *p corrected* is below 0.05. On a fixed
test set, the test is the ordinary paired t-test over seeds, which says nothing about other test
samples.
"""
# Columns shown at first; a button shows the others.
COMPARED = ("difference", "low", "high", "finding")


def table(runs: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame:
    """Return one row per other combination of settings: its score minus the baseline's.

    The baseline is the baseline strategy on its fewest cores, for the same dataset, model,
    schedule and training-set size. Runs are paired by fold and seed.
    """
    base = comparison.of_baseline(runs, facts.baseline)
    others = runs.drop(index=base.index)
    return comparison.compare(others, base, comparison.TRAINED, facts.metric)
