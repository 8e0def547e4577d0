"""Which model and schedule scores best, and which others differ from it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from allcores_study.analysis import comparison, tidy

if TYPE_CHECKING:
    from allcores_study.analysis.metrics import Metric
    from allcores_study.analysis.products import StudyFacts

TITLE = "which model and schedule is best?"
CAPTION = """
{metric} on the test folds of each model and schedule, trained with **{base}**. *low 95*, *high 95*:
the 95 % interval of the mean. *difference*: to the best row, paired by fold and seed. *low*,
*high*: the 95 % interval of the difference, not corrected for multiple comparisons. *p*: Nadeau and
Bengio's corrected resampled t-test, which allows for folds that share training samples. *p
corrected*: by Holm's method for all pairs of rows, because the same runs decided which row is best.
A difference is significant if *p corrected* is below 0.05. A row is not ranked if one of its runs
is missing, diverged or has no defined {metric}.
"""
COMPARED = ("score", "low_95", "high_95", "difference", "finding")

PLACE, COMPETITOR = ["dataset", "train_size"], ["model", "schedule"]
BEST, NOT_RANKED = "best", "not ranked: some of its runs diverged"
MISSING = "not ranked: some of its runs are missing"
UNDEFINED = "not ranked: not defined in some of its runs"
COMPARISON = ["pairs", "difference", "low", "high", "at_most", "p", "p_corrected", "finding"]


def table(runs: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame:
    """Return one row per dataset, training-set size, model and schedule, the best first."""
    runs = comparison.of_baseline(runs, facts.baseline)
    ranked = [_ranked(group, facts.metrics) for _, group in runs.groupby(PLACE, sort=False)]
    others = [metric.name for metric in facts.metrics[1:]]
    columns = [*PLACE, *COMPETITOR, "score", "low_95", "high_95", *others, *COMPARISON]
    return pd.concat(ranked)[columns] if ranked else pd.DataFrame(columns=columns)


def _ranked(runs: pd.DataFrame, metrics: Sequence[Metric]) -> pd.DataFrame:
    """Return the rows of one dataset and training-set size."""
    metric, *others = metrics
    groups = runs.groupby(COMPETITOR, sort=False)
    scores = {"scored": ("score", "count"), "runs": ("score", "size")}
    means = {other.name: (other.name, "mean") for other in others}
    rows = groups.agg(**scores, **means, diverged=("diverged", "count")).reset_index()
    rows["score"] = [comparison.mean(group) for _, group in groups]
    rows[["low_95", "high_95"]] = [comparison.interval(group, metric) for _, group in groups]
    # Means over different sets of folds and seeds are not comparable.
    expected = len(runs[tidy.REPEAT].drop_duplicates())
    rows["is_whole"] = rows["scored"] == expected
    order = {"by": ["is_whole", "score"], "ascending": [False, metric.sign < 0]}
    rows = rows.sort_values(**order, kind="stable")
    rows = rows.merge(_compared(runs, rows[rows["is_whole"]], metric), "left", COMPETITOR)
    conditions = [rows["is_whole"], rows["diverged"] > 0, rows["runs"] < expected]
    otherwise = np.select(conditions, [BEST, NOT_RANKED, MISSING], UNDEFINED)
    rows["finding"] = rows["finding"].astype(object).fillna(pd.Series(otherwise))
    return rows.assign(**runs[PLACE].iloc[0])


def _compared(runs: pd.DataFrame, whole: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """Compare all models except the first with the first; see comparison.compare()."""
    if whole.empty:
        return pd.DataFrame(columns=[*COMPETITOR, *COMPARISON])
    is_best = (runs[COMPETITOR] == whole[COMPETITOR].iloc[0]).all(axis=1)
    others = runs[~is_best].merge(whole[COMPETITOR], on=COMPETITOR)
    compared = comparison.compare(others, runs[is_best], PLACE, metric)
    untold = len(whole) * (len(whole) - 1) // 2 - len(compared)  # pairs without the best
    corrected = comparison.holm([*compared["p"], *[1.0] * untold])
    compared["p_corrected"] = corrected[: len(compared)]
    compared["finding"] = [comparison.finding(row) for _, row in compared.iterrows()]
    return compared[[*COMPETITOR, *COMPARISON]]
