"""What scripts/plan.py predicted, and what was measured."""

from itertools import combinations

import pandas as pd

from allcores.analysis import tidy
from allcores.analysis.wording import by_model, count

TITLE = "predicted and measured"
SECTION = "speed"
WHEN = "planned"
ORDER = 28
CAPTION = """
Predictions of ``scripts/plan.py``, made before training from a few seconds of each setup, and
measurements. *training*: seconds of training of a run; *seconds*: from its start to its end,
scoring included; *memory*: the peak of all its processes. Means over runs that differ in schedule,
fold or seed. *training error* and *error*: predicted divided by measured, minus one. In the last
row: the makespan of the study's runs.
"""
# Columns to compare, shown at first; the others are shown on request.
COMPARED = ("predicted_seconds", "measured_seconds", "error", "training_error")

ALL = "all together"
# Setups whose times differ by less than this share are not ranked; errors up to GOOD count as good.
CLOSE, GOOD = 0.10, 0.25
PAIRS = {
    "training": ("training_seconds", "training_seconds"),
    "seconds": ("seconds", "lasted_seconds"),
    "memory": ("memory_mb", "peak_memory_mb"),
}


def table(runs, predicted):
    """One row per dataset, model, setup and training-set size, and one for all.

    Args:
        predicted: a row per run of the campaign, written by scripts/plan.py.
    """
    # Threads may be `auto` in one of the two; plans for other settings or cores are left out.
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
    groups = both.groupby([*tidy.SPEED_SETTINGS, "cores"], sort=False)
    means = groups[shown].mean()
    table = means.assign(runs=groups.size())
    table = table.reset_index()
    if len(table):
        start, end = both["start"].min(), (both["start"] + both["predicted_seconds"]).max()
        total = {"model": ALL, "runs": len(both)}
        total |= {"predicted_seconds": end - start, "measured_seconds": tidy.makespan(both)}
        table = pd.concat([table, pd.DataFrame([total])], ignore_index=True)
    return table.assign(
        training_error=table["predicted_training"] / table["measured_training"] - 1,
        error=table["predicted_seconds"] / table["measured_seconds"] - 1,
    )


def _column(both, name, side):
    """A column that is in one of the two frames or in both."""
    return both[f"{name}_{side}"] if f"{name}_{side}" in both else both[name]


def sentences(prediction_table):
    """How good the prediction was: in total, per setup, and in the order of the setups."""
    is_total = prediction_table["model"] == ALL
    rows = prediction_table[~is_total]
    if rows.empty:
        return
    total = prediction_table[is_total].iloc[0]
    good = (rows["error"].abs() <= GOOD).sum()
    right, ranked = _order(rows)
    order = f", and {right} of {count(ranked, 'pair')} in the right order" if ranked else ""
    yield (
        f"Predicted before training: {total['predicted_seconds']:,.0f} s for "
        f"{count(int(total['runs']), 'run')}; measured {total['measured_seconds']:,.0f} s "
        f"({100 * total['error']:+.0f} %). Of {count(len(rows), 'setup')}, {good} were predicted "
        f"within {100 * GOOD:.0f} %{order}."
    )


def _order(rows):
    """(how many pairs of setups of the same model are predicted in the order that was measured, of
    how many whose training times differ by more than CLOSE)."""
    right = ranked = 0
    for _, group in by_model(rows):
        for (_, first), (_, second) in combinations(group.iterrows(), 2):
            measured = first["measured_training"] / second["measured_training"]
            predicted = first["predicted_training"] / second["predicted_training"]
            if max(measured, 1 / measured) > 1 + CLOSE:
                ranked += 1
                right += (predicted > 1) == (measured > 1)
    return right, ranked
