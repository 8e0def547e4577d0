"""Scores of every cell of a study: mean, spread and 95 % interval over folds and seeds."""

from allcores.analysis import comparison, metrics, tidy
from allcores.analysis.html_table import WHOLE, number, seconds
from allcores.analysis.words.wording import count

TITLE = "{metric}"
SECTION = "{metric}"
WHEN = "learnable"
ORDER = 55
CAPTION = """
Held-out {metric} of each cell of the study ``{study}``. *runs*: folds times seeds. *diverged*:
those whose loss did not stay finite; they do not count in the {metric}. *half width 95*: half
the width of the 95 % interval of the mean, with Nadeau and Bengio's correction for folds that
share training samples. *seconds*: mean training time of a run, evaluation and start-up not
counted. *core seconds*: that times the cores of the run.
"""
# What one compares, beside the metrics; the other columns are shown on request.
COMPARED = ("half_width_95", "runs", "seconds")


def table(runs, facts):
    """One row per cell, from one row per run; a column for each metric of the study, of the runs
    that did not diverge. Spread and interval are of the leading one."""
    runs = runs.assign(core_seconds=runs["training_seconds"] * runs["cores"])
    groups = runs.groupby(tidy.CELL, sort=False)
    table = groups.agg(
        runs=("seed", "size"),
        diverged=("diverged", "count"),
        **{metric.name: (metric.name, "mean") for metric in facts.metrics},
        standard_deviation=("score", "std"),
        seconds=("training_seconds", "mean"),
        core_seconds=("core_seconds", "mean"),
    ).reset_index()
    table.insert(
        table.columns.get_loc("seconds"),
        "half_width_95",
        [comparison.half_width(cell) for _, cell in groups],
    )
    return table


def sentences(runs, facts):
    """Which metrics some runs lack, as the ROC AUC of samples that are all of one class."""
    runs = runs[runs["diverged"].isna()]
    for metric in facts.metrics:
        without = runs[metric.name].isna().sum()
        if without:
            yield (
                f"{metric} has no value in {without} of {count(len(runs), 'run')}, whose held-out "
                "samples do not define it; what is said of it is of the others."
            )


def formats(table):
    """Column -> html_table.Number."""
    found = metrics.columns(table)
    return {
        **dict.fromkeys(("nodes", "workers", "runs", "diverged"), WHOLE),
        **{metric.name: number(metric) for metric in found},
        "standard_deviation": number(found[0]),
        "half_width_95": number(found[0], before="± "),
        **dict.fromkeys(("seconds", "core_seconds"), seconds(2)),
    }
