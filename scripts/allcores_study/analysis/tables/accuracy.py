"""Scores of every combination of settings, and whether they differ from the baseline's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from allcores_study.analysis import comparison, tidy
from allcores_study.analysis.wording import count

if TYPE_CHECKING:
    import pandas as pd

    from allcores_study.analysis.products import StudyFacts

TITLE = "{metric}"
CAPTION = """
Mean {metric} on the test folds for each combination of settings in the study ``{study}``. *runs*:
folds times seeds. *diverged*: runs whose loss became infinite or NaN; the {metric} leaves them out.
*low 95*, *high 95*: the 95 % interval of the mean, with Nadeau and Bengio's correction for folds
that share training samples. *seconds*: mean training time of a run, without evaluation and
start-up. *core seconds*: training time multiplied by the cores of the run. *difference*: to
**{base}** with the same model and schedule, paired by fold and seed. *low*, *high*: the 95 %
interval of the difference, not corrected for multiple comparisons. *at most*: the distance from 0
of *low* or *high*, whichever is larger. *p*: Nadeau and Bengio's corrected resampled t-test. *p
corrected*: by Holm's method for all comparisons in this table. A difference is significant if *p
corrected* is below 0.05. On a fixed test set, the test is the ordinary paired t-test over seeds,
which says nothing about other test samples.
"""
COMPARED = ("low_95", "high_95", "runs", "seconds", "difference", "finding")


def table(runs: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame:
    """Return one row per combination of settings, from one row per run.

    Each metric has a column: its mean over the runs that did not diverge. The spread, the interval
    and the comparison are those of the leading metric. Rows of the baseline, the baseline strategy
    on its fewest cores, have no comparison.
    """
    runs = runs.assign(core_seconds=runs["training_seconds"] * runs["cores"])
    groups = runs.groupby(tidy.SETTINGS, sort=False)
    table = groups.agg(
        runs=("seed", "size"),
        diverged=("diverged", "count"),
        **{facts.metric.name: ("score", "mean")},
        standard_deviation=("score", "std"),
        **{metric.name: (metric.name, "mean") for metric in facts.metrics[1:]},
        seconds=("training_seconds", "mean"),
        core_seconds=("core_seconds", "mean"),
    ).reset_index()
    table[facts.metric.name] = [comparison.mean(repeats) for _, repeats in groups]
    intervals = [comparison.interval(repeats, facts.metric) for _, repeats in groups]
    place = table.columns.get_loc("standard_deviation")
    for end, name in enumerate(("low_95", "high_95"), 1):
        table.insert(place + end, name, [interval[end - 1] for interval in intervals])
    base = comparison.of_baseline(runs, facts.baseline)
    others = runs.drop(index=base.index)
    compared = comparison.compare(others, base, comparison.TRAINED, facts.metric)
    return table.merge(compared, "left", tidy.SETTINGS)


def sentences(runs: pd.DataFrame, facts: StudyFacts) -> Iterator[str]:
    """Yield the metrics that some runs lack, such as the ROC AUC of samples of one class."""
    runs = runs[runs["diverged"].isna()]
    for metric in facts.metrics:
        undefined = runs[metric.name].isna().sum()
        if undefined:
            yield (
                f"{metric} is undefined for the test samples of {undefined} of "
                f"{count(len(runs), 'run')}; sentences about it refer to the other runs."
            )
