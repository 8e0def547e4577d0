"""Scores of every combination of settings: mean, spread and 95 % interval over repeats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from allcores_study.analysis import comparison, tidy
from allcores_study.analysis.wording import count

if TYPE_CHECKING:
    import pandas as pd

    from allcores_study.analysis.products import StudyFacts

TITLE = "{metric}"
SECTION = "{metric}"
ORDER = 55
CAPTION = """
Mean {metric} on the test folds for each combination of settings in the study ``{study}``. *runs*:
folds times seeds. *diverged*: runs whose loss became infinite or NaN; the {metric} leaves them out.
*low 95*, *high 95*: the 95 % interval of the mean, with Nadeau and Bengio's correction for folds
that share training samples. *seconds*: mean training time of a run, without evaluation and
start-up. *core seconds*: training time multiplied by the cores of the run.
"""
# Columns shown at first, with the metrics; a button shows the others.
COMPARED = ("low_95", "high_95", "runs", "seconds")


def table(runs: pd.DataFrame, facts: StudyFacts) -> pd.DataFrame:
    """Return one row per combination of settings, from one row per run.

    Each metric has a column: its mean over the runs that did not diverge. The spread and the
    interval are those of the leading metric.
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
    intervals = [comparison.interval(repeats, facts.metric) for _, repeats in groups]
    place = table.columns.get_loc("standard_deviation")
    for end, name in enumerate(("low_95", "high_95"), 1):
        table.insert(place + end, name, [interval[end - 1] for interval in intervals])
    return table


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
