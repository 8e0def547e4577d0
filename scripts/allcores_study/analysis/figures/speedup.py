"""Plot the speedup of every setup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from allcores_study.analysis import products, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts

TITLE = "speedup"
CAPTION = """
Speedup of each setup, by samples per second after the first epoch. **Baseline: {base}.** Marks: the
median over runs. Bars: from the slowest to the fastest run. Dashed line: ideal scaling, or the
baseline if setups are rows. Hollow marks have a note in the table.
"""

MOST_LINES = 12  # with more strategies, lines could not be told apart


def figure(speed_table: pd.DataFrame, facts: StudyFacts) -> Figure | None:
    """Draw one panel per dataset and model, with bars from the slowest to the fastest run.

    Each strategy is a line if there are few of them on several numbers of cores; otherwise each
    setup is a row.
    """
    if not products.has_several_setups(speed_table):
        return None
    counts = speed_table.groupby("strategy")["cores"].nunique()
    draw = _lines if counts.max() > 1 and len(counts) <= MOST_LINES else _rows
    figure = draw(speed_table, f"speedup over {facts.baseline}")
    if speed_table["note"].notna().any():
        style.explain_hollow(figure.axes[0])
    style.legend_below(figure)
    return figure


def _lines(table: pd.DataFrame, quantity: str) -> Figure:
    """Draw speedup against cores, and ideal scaling."""
    colours = style.strategies(table["strategy"])
    figure, panels = style.panels_of(table, sharex=True, sharey=True)
    most = table["cores"].max()
    for panel, group in panels:
        base_cores = (group["cores"] * group["efficiency"] / group["speedup"]).dropna()
        for least in base_cores[:1]:
            panel.plot([least, most], [1, most / least], color="0.6", lw=1, ls="--", label="ideal")
        for label, strategy, line in style.lines(group):
            colour, marker = colours[strategy]
            panel.errorbar(
                *(line["cores"], line["speedup"], _reach(line)),
                color=colour,
                marker=marker,
                ls=style.dash(line["nodes"].iloc[0], sorted(group["nodes"].unique())),
                capsize=3,
                label=label,
            )
            noted = line[line["note"].notna()]
            panel.plot(
                *(noted["cores"], noted["speedup"], marker),
                mfc="white",
                mec=colour,
                zorder=3,
            )
        panel.set_xlabel("cores")
        panel.set_xticks(sorted(table["cores"].unique()))
    # Only now: the panels share the axis, and setting one end fixes the other.
    figure.axes[0].set_ylim(bottom=0)
    figure.axes[0].set_ylabel(quantity)
    return figure


def _rows(table: pd.DataFrame, quantity: str) -> Figure:
    """Draw a row per setup, with its speedup as a number."""
    colours = style.strategies(table["strategy"])
    rows = table.groupby(["model", "dataset", "train_size"]).size().max()
    options = {"width": 5, "height": 1 + 0.28 * rows, "columns": 2, "sharex": True}
    figure, panels = style.panels_of(table, **options)
    for panel, group in panels:
        panel.axvline(1, color="0.6", lw=1, ls="--")
        for row, (_, setup) in enumerate(group.iterrows()):
            colour, marker = colours[setup["strategy"]]
            panel.errorbar(
                *(setup["speedup"], row),
                xerr=[[reach] for reach in _reach(setup)],
                color=colour,
                marker=marker,
                mfc=colour if pd.isna(setup["note"]) else "white",
                capsize=3,
            )
            note = "" if pd.isna(setup["note"]) else setup["note"]
            panel.annotate(
                note if pd.isna(setup["speedup"]) else f"{setup['speedup']:.2f} x",
                (1, row),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=9,
            )
        style.name_rows(panel, [style.setup_text(setup) for _, setup in group.iterrows()])
        panel.set_xlabel(quantity)
    fastest = table["fastest"] * table["speedup"] / table["samples_per_second"]
    figure.axes[0].set_xlim(0, 1.05 * fastest.max() if fastest.notna().any() else 1)
    return figure


def _reach(rows: pd.DataFrame | pd.Series) -> list[pd.Series] | list[float]:
    """Return the distances from the median down to the slowest and up to the fastest run."""
    speed = rows["samples_per_second"]
    return [
        rows["speedup"] * (1 - rows["slowest"] / speed),
        rows["speedup"] * (rows["fastest"] / speed - 1),
    ]
