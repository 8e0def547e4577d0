"""Plot how important each column of a table is for the best models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allcores_study.analysis import comparison, style, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts

TITLE = "which columns matter"
CAPTION = """
Permutation importance of the columns of the data for the two best models: how much worse {metric}
on the test folds is after the values of a column were shuffled among the samples. Faint dots:
single runs (folds and seeds). Marker: their mean. Bar: its 95 % interval, corrected for folds that
share training samples. The columns have the same order in all panels: that of the best model. Of
more than 20 columns, its first 20 are drawn. Beside a model: its mean {metric} in these runs, with
its best schedule. Correlated columns share their importance, so each of them may look unimportant.
The importance describes the model. It shows no causes.
"""
MOST_ROWS = 20
LONGEST = 32  # letters of a column's name


def figure(
    runs: pd.DataFrame, importance: pd.DataFrame, columns_table: pd.DataFrame, facts: StudyFacts
) -> Figure:
    """Draw one panel per dataset and model, with a row per column."""
    of_datasets = columns_table.groupby("dataset", sort=False)
    order = {name: rows["column"].unique()[:MOST_ROWS] for name, rows in of_datasets}
    size: dict[str, Any] = {"width": 5.2, "height": 1.2 + 0.27 * max(map(len, order.values()))}
    figure, panels = style.panels_of(columns_table, more=("dataset",), columns=2, **size)
    colours = style.models(runs["model"])
    of_baseline = comparison.of_baseline(runs, facts.baseline)
    for panel, rows in panels:
        shown = rows.set_index("column").loc[order[rows["dataset"].iloc[0]]]
        own = importance.merge(rows[[*comparison.TRAINED, "column"]])
        _draw(panel, shown, own, colours[rows["model"].iloc[0]], facts.metric.scale)
        used = own[[*comparison.TRAINED, *tidy.REPEAT]].drop_duplicates()
        score = facts.metric.text(comparison.mean(used.merge(of_baseline)))
        panel.set_title(f"{panel.get_title()}: {facts.metric} {score}")
        unit = " (points)" if facts.metric.unit else ""
        panel.set_xlabel(f"how much worse {facts.metric} is{unit}")
    return figure


def _draw(
    panel: Axes, shown: pd.DataFrame, importance: pd.DataFrame, colour: str, scale: float
) -> None:
    """Draw the runs of one model, their means and intervals, a row per column of the data.

    Args:
        shown: rows of the table, by column of the data.
        importance: one row per run and column.
    """
    row_of = {name: row for row, name in enumerate(shown.index)}
    own = importance[importance["column"].isin(row_of)]
    panel.axvline(0, color="0.5", lw=1)
    look: dict[str, Any] = {"color": colour, "alpha": 0.3, "ms": 4}
    panel.plot(scale * own["importance"], own["column"].map(row_of), "o", **look)
    means = scale * shown["importance"]
    reach = [means - scale * shown["low"], scale * shown["high"] - means]
    look = {"fmt": "o", "color": colour, "capsize": 3, "ms": 6, "mec": "white"}
    panel.errorbar(means, range(len(means)), xerr=reach, **look)
    style.name_rows(panel, [_short(name) for name in shown.index])


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
