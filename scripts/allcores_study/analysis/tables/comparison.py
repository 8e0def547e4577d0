"""Does the leading metric differ from the baseline's, and by how much at most?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.analysis import comparison

if TYPE_CHECKING:
    import pandas as pd

    from allcores_study.analysis.products import Facts

TITLE = "does {metric} differ?"
SECTION = "{metric}"
WHEN = "learnable"
ORDER = 60
CAPTION = """
Held-out {metric} minus that of **{base}**, in pairs of runs with the same fold and seed. *low*,
*high*: the 95 % interval of the mean difference, not corrected for the number of comparisons; *at
most*: the larger of their distances from 0. *p*: Nadeau and Bengio's corrected resampled t-test,
which allows for folds that share training samples (on a fixed test set it is the ordinary paired
t-test over seeds, which says nothing about other test samples). *p corrected*: by Holm's method for
all comparisons in this table. The difference is significant where *p corrected* is below 0.05.
"""
# Columns to compare, shown at first; the others are shown on request.
COMPARED = ("difference", "low", "high", "finding")


def table(runs: pd.DataFrame, facts: Facts) -> pd.DataFrame:
    """One row per combination of settings that is not the baseline: its score minus the baseline's.

    The baseline is the baseline strategy on its fewest cores, for the same dataset, model,
    schedule and training-set size; runs are paired by fold and seed.
    """
    base = comparison.of_baseline(runs, facts.baseline)
    others = runs.drop(index=base.index)
    return comparison.compare(others, base, comparison.TRAINED, facts.metric)
