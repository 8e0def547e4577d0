"""Plot training time against the number of cores, with published times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allcores_study.analysis import style
from allcores_study.analysis.tables.published import of_times

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts

TITLE = "elapsed time"
CAPTION = """
Training time per 1,000 samples by number of cores, both axes logarithmic. Dashed line: ideal
scaling from the run with the fewest cores. Hollow squares and dotted lines: published times. In a
short run, start-up and first batches weigh more.
"""


def figure(speed_table: pd.DataFrame, facts: StudyFacts) -> Figure | None:
    """Draw one panel per model, both axes logarithmic; hollow grey marks are published times."""
    if not of_times(facts.references):
        return None
    speeds = speed_table.assign(per_1000=1000 * speed_table["seconds"] / speed_table["samples"])
    colours = style.strategies(speeds["strategy"])
    figure, panels = style.panels_of(speeds, width=4.6, height=3.8)
    for panel, group in panels:
        model = group["model"].iloc[0]
        for label, strategy, line in style.lines(group):
            colour, marker = colours[strategy]
            panel.plot(line["cores"], line["per_1000"], color=colour, marker=marker, label=label)
        references = of_times(facts.references)
        published = [reference for reference in references if reference["model"] == model]
        _references(panel, published)
        counts = sorted({*group["cores"], *(r["cores"] for r in published if "cores" in r)})
        first = group.sort_values(["cores", "per_1000"]).iloc[0]
        ends = [first["cores"], group["cores"].max()]
        ideal = [first["per_1000"] * first["cores"] / cores for cores in ends]
        panel.plot(ends, ideal, color="0.6", lw=1, ls="--", label="ideal")
        panel.set(xscale="log", xlabel="cores")
        panel.set_xticks(counts, labels=map(str, counts))
        panel.minorticks_off()
        style.plain_logarithmic(panel.yaxis)
    figure.axes[0].set_ylabel("training time per 1,000 samples (s)")
    style.legend_below(figure)
    return figure


def _references(panel: Axes, references: list[dict[str, Any]]) -> None:
    """Draw published times as hollow marks, or as lines if the number of cores is unknown."""
    for reference in references:
        seconds = 1000 * reference["seconds"] / reference["images"]
        cores = reference.get("cores")
        name = f"published: {reference['label']}"
        if cores:
            panel.plot(cores, seconds, "s", mfc="none", mec="0.4", label=name)
        else:
            panel.axhline(seconds, color="0.7", lw=1, ls=":")
            panel.annotate(
                name,
                (1, seconds),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=8,
                color="0.4",
            )
