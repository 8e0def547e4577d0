"""Plot the score of each trial of a search, and the best one so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib import ticker

from allcores_study.analysis import style, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allcores_study.analysis.metrics import Metric
    from allcores_study.analysis.products import Facts

TITLE = "{metric} in the course of the search"
SECTION = "{metric}"
WHEN = "searched"
ORDER = 79
CAPTION = """
Mean {metric} on the inner folds in the order of the trials. Dots: one for each candidate and fold.
Lines: the best candidate so far. Colour: the fold and seed. The first candidates were drawn, the
later ones suggested from earlier scores. If a line still improves at the end, more trials may help.
Hollow dots: candidates that were eliminated before they were trained to the end; the lines leave
them out. Scores many times as far from the median as most others are not shown.
"""

PANEL = ["model", "dataset"]
# Settings that are shown with their name; other values explain themselves.
COUNTS = ["nodes", "workers", "threads", "train_size", "seed"]


def figure(candidates: pd.DataFrame, facts: Facts) -> Figure:
    """Draw a panel for each model and dataset."""
    groups = list(candidates.dropna(subset=["score", "trial"]).groupby(PANEL, sort=False))
    if not groups:
        return style.empty("no candidate has a score")
    named = tidy.varying(candidates, [name for name in tidy.RUN if name not in PANEL])
    colours = style.models(_text(first, named) for _, first in candidates.iterrows())
    figure, axes = style.panels(len(groups), sharey=True)
    for panel, ((model, dataset), group) in zip(axes, groups, strict=True):
        for _, choice in group.groupby(tidy.RUN, sort=False, dropna=False):
            text = _text(choice.iloc[0], named)
            look = {"color": colours[text], "label": text}
            _draw(panel, choice.sort_values("trial"), facts.metric, look)
        panel.xaxis.set_major_locator(ticker.MaxNLocator(style.MOST_TICKS, integer=True))
        panel.set_xlabel("trial")
        panel.set_ylabel(facts.metric.axis)
        panel.set_title(f"{model}, {dataset}", loc="left")
    style.leave_out_farthest(axes[0], facts.metric.scale * candidates["score"])
    if named:
        style.legend_below(figure)
    return figure


def _text(row: pd.Series, named: list[str]) -> str:
    """Return the settings of a choice in words: "fold 0 of 3, seed 1"."""
    return ", ".join(f"{name} {row[name]}" if name in COUNTS else str(row[name]) for name in named)


def _draw(panel: Axes, choice: pd.DataFrame, metric: Metric, look: dict[str, Any]) -> None:
    """Draw the candidates of one choice."""
    pruned = choice["pruned"].astype(bool)
    scores = metric.scale * choice["score"]
    panel.plot(choice["trial"][pruned], scores[pruned], "o", mfc="none", ms=4, color="0.6")
    panel.plot(choice["trial"][~pruned], scores[~pruned], ".", alpha=0.5, color=look["color"])
    best = metric.sign * (metric.sign * scores[~pruned]).cummax()
    panel.step(choice["trial"][~pruned], best, where="post", **look)
