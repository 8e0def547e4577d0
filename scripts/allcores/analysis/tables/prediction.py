"""What scripts/plan.py had predicted beside what was measured."""

from itertools import combinations

import pandas as pd

from allcores.analysis import occupancy, tidy
from allcores.analysis.html_table import WHOLE, Number, percent, seconds
from allcores.analysis.words.wording import by_model, count

TITLE = "predicted and measured"
SECTION = "speed"
WHEN = "planned"
ORDER = 28
CAPTION = """
What ``scripts/plan.py`` had predicted before anything was trained, from a few seconds of each way
of training, beside what was measured. *training*: seconds of training of a run; *seconds*: from
its start to its end, scoring included; *memory*: at most, of all its processes. Means over the
runs of a cell; schedules are repeats. *training error* and *error*: predicted over measured, less
one. In the last row: the makespan of the study's runs. *extrapolated*: the machine that planned had
fewer cores.
"""
# What one compares; the other columns are shown on request.
COMPARED = ("predicted_seconds", "measured_seconds", "error", "training_error")

ALL = "all together"
# Two ways that are closer than this share are alike; an error of a cell up to that is a good one.
ALIKE, GOOD = 0.10, 0.25
PAIRS = {
    "training": ("training_seconds", "training_seconds"),
    "seconds": ("seconds", "lasted_seconds"),
    "memory": ("memory_mb", "peak_memory_mb"),
}


def table(runs, predicted):
    """One row per dataset, model, strategy, layout and training-set size, and one for all.

    Args:
        predicted: a row per run of the campaign, as scripts/plan.py writes them.
    """
    # Threads may be `auto` in one of the two; a plan for other settings or cores is no prediction.
    predicted = predicted[predicted["inner"].isna()].astype({"threads": str})
    both = runs.astype({"threads": str}).merge(
        predicted, on=tidy.RUN, suffixes=("_measured", "_predicted")
    )
    same = [both[f"planned_{key}"] == both[key] for key in ("epochs", "batch_size")]
    both = both[same[0] & same[1] & (both["planned_cores"] == both["cores_of_call"])]
    both = both.assign(
        **{f"predicted_{name}": _column(both, of[0], "predicted") for name, of in PAIRS.items()},
        **{f"measured_{name}": _column(both, of[1], "measured") for name, of in PAIRS.items()},
        cores=_column(both, "cores", "measured"),
    )
    shown = [f"{kind}_{name}" for name in PAIRS for kind in ("predicted", "measured")]
    cells = both.groupby([*tidy.SPEED_CELL, "cores"], sort=False)
    found = cells[shown].mean().assign(runs=cells.size(), extrapolated=cells["extrapolated"].any())
    found = found.reset_index()
    if len(found):
        start, end = both["start"].min(), (both["start"] + both["predicted_seconds"]).max()
        whole = {"model": ALL, "runs": len(both), "extrapolated": both["extrapolated"].any()}
        whole |= {"predicted_seconds": end - start, "measured_seconds": occupancy.makespan(both)}
        found = pd.concat([found, pd.DataFrame([whole])], ignore_index=True)
    return found.assign(
        training_error=found["predicted_training"] / found["measured_training"] - 1,
        error=found["predicted_seconds"] / found["measured_seconds"] - 1,
    )


def _column(both, name, side):
    """A column that one of the two has, or both."""
    return both[f"{name}_{side}"] if f"{name}_{side}" in both else both[name]


def sentences(prediction_table, facts):
    """How good the prediction was: in total, per cell, and in the order of the ways."""
    is_whole = prediction_table["model"] == ALL
    cells = prediction_table[~is_whole]
    if cells.empty:
        return
    whole = prediction_table[is_whole].iloc[0]
    good = (cells["error"].abs() <= GOOD).sum()
    right, apart = _order(cells)
    far = ", extrapolated from fewer cores" if cells["extrapolated"].any() else ""
    order = f", and {right} of {count(apart, 'pair')} in the right order" if apart else ""
    yield (
        f"Predicted before training{far}: {whole['predicted_seconds']:,.0f} s for "
        f"{count(int(whole['runs']), 'run')}; measured {whole['measured_seconds']:,.0f} s "
        f"({100 * whole['error']:+.0f} %). Of {count(len(cells), 'way')} of training {good} "
        f"came out within {100 * GOOD:.0f} %{order}."
    )


def _order(cells):
    """(how many pairs of ways of the same model are predicted in the order that was measured, of
    how many whose training times differ by more than ALIKE)."""
    right = apart = 0
    for _, group in by_model(cells):
        for (_, one), (_, other) in combinations(group.iterrows(), 2):
            measured = one["measured_training"] / other["measured_training"]
            if max(measured, 1 / measured) > 1 + ALIKE:
                apart += 1
                right += (one["predicted_training"] > other["predicted_training"]) == (measured > 1)
    return right, apart


def formats(table):
    """Column -> html_table.Number."""
    written = dict.fromkeys(("nodes", "workers", "cores", "runs"), WHOLE)
    for kind in ("predicted", "measured"):
        written |= dict.fromkeys((f"{kind}_training", f"{kind}_seconds"), seconds(2))
        written[f"{kind}_memory"] = Number("{:,.0f}", "MB")
    return written | dict.fromkeys(("error", "training_error"), percent(0, "+"))
