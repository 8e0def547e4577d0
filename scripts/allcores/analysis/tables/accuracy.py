"""Accuracy of every cell of a study: mean, spread and 95 % interval over folds and seeds."""

from allcores.analysis import comparison, tidy
from allcores.analysis.html_table import WHOLE, Number, percent, seconds

TITLE = "accuracy"
SECTION = "accuracy"
WHEN = "learnable"
ORDER = 55
CAPTION = """
Held-out accuracy of each cell of the study ``{study}``. *runs*: folds times seeds. *diverged*:
those whose loss did not stay finite; they do not count in the accuracy. *half width 95*: half
the width of the 95 % interval of the mean, with Nadeau and Bengio's correction for folds that
share training samples. *seconds*: mean training time of a run, evaluation and start-up not
counted. *core seconds*: that times the cores of the run.
"""
# What one compares; the other columns are shown on request.
COMPARED = ("accuracy", "half_width_95", "runs", "seconds")


def table(runs):
    """One row per cell, from one row per run; accuracy is that of the runs that did not diverge."""
    runs = runs.assign(core_seconds=runs["training_seconds"] * runs["cores"])
    groups = runs.groupby(tidy.CELL, sort=False)
    table = groups.agg(
        runs=("accuracy", "size"),
        diverged=("diverged", "count"),
        accuracy=("accuracy", "mean"),
        standard_deviation=("accuracy", "std"),
        seconds=("training_seconds", "mean"),
        core_seconds=("core_seconds", "mean"),
    ).reset_index()
    table.insert(
        table.columns.get_loc("seconds"),
        "half_width_95",
        [comparison.half_width(cell) for _, cell in groups],
    )
    return table


def formats(table):
    """Column -> html_table.Number."""
    return {
        **dict.fromkeys(("nodes", "workers", "runs", "diverged"), WHOLE),
        **dict.fromkeys(("accuracy", "standard_deviation"), percent(2)),
        "half_width_95": Number("± {:.2f}", "%", 100.0),
        **dict.fromkeys(("seconds", "core_seconds"), seconds(2)),
    }
