"""Which model and schedule scores best, and which others differ from it?"""

import pandas as pd

from allcores.analysis import comparison
from allcores.analysis.html_table import WHOLE, Number, number
from allcores.analysis.metrics import ACCURACY, Metric

TITLE = "which model and schedule is best?"
SECTION = "{metric}"
WHEN = "several_models"
ORDER = 54
LEADING = 4
CAPTION = """
Held-out {metric} of each model and schedule, trained with **{baseline} with its fewest cores**;
*half width 95*: half the width of the 95 % interval of the mean. *difference*: to the best one, in
pairs of runs with the same fold and seed; *low*, *high*: its 95 % interval. *p*: Nadeau and
Bengio's corrected resampled t-test, which allows for folds that share training samples; *p
corrected*: by Holm's method for all comparisons with that one. The difference is significant where
*p corrected* is below 0.05.
"""
COMPARED = ("score", "half_width_95", "difference", "finding")

PLACE, COMPETITOR = ["dataset", "train_size"], ["model", "schedule"]
BEST = "best"


def table(runs, facts):
    """One row per dataset, training-set size, model and schedule, the best first."""
    runs = comparison.of_baseline(runs, facts.baseline)
    runs = runs[runs["score"].notna()]
    ranked = [_ranked(group, facts.metric) for _, group in runs.groupby(PLACE, sort=False)]
    columns = [*PLACE, *COMPETITOR, "score", "half_width_95", "pairs", "difference"]
    columns += ["low", "high", "at_most", "p", "p_corrected", "finding"]
    table = pd.concat(ranked)[columns] if ranked else pd.DataFrame(columns=columns)
    return table.assign(metric=facts.metric.name)


def _ranked(runs, metric):
    """The rows of one dataset and training-set size."""
    groups = runs.groupby(COMPETITOR, sort=False)
    scores = groups["score"].mean().rename("score").reset_index()
    scores["half_width_95"] = [comparison.half_width(group) for _, group in groups]
    scores = scores.sort_values("score", ascending=metric.sign < 0, kind="stable")
    best = scores.iloc[0]
    is_best = (runs[COMPETITOR] == best[COMPETITOR]).all(axis=1)
    compared = comparison.compare(runs[~is_best], runs[is_best], PLACE, metric)
    compared = compared.drop(columns=["strategy", "nodes", "workers", "threads", *PLACE])
    rows = scores.merge(compared, on=COMPETITOR, how="left")
    rows.loc[0, "finding"] = BEST
    return rows.assign(**runs[PLACE].iloc[0])


def formats(table):
    """Column -> html_table.Number."""
    metric = Metric.of(table["metric"].iloc[0]) if len(table) else ACCURACY
    numbers = {"pairs": WHOLE, "score": number(metric)}
    numbers["half_width_95"] = number(metric, before="± ")
    numbers |= dict.fromkeys(("difference", "low", "high"), number(metric, "+"))
    numbers |= {"at_most": number(metric, "-")}
    return numbers | dict.fromkeys(("p", "p_corrected"), Number("{:.3f}"))
