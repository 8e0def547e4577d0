"""Plot scores against each swept value."""

from __future__ import annotations

import re
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any

import pandas as pd

from allcores_study.analysis import style, tidy
from allcores_study.analysis.selection import SWEPT_COLUMN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts

TITLE = "{metric} against swept values"
# The axis is logarithmic if the largest value is at least this many times the smallest.
WIDE = 20
MOST_TICKS, MOST_LETTERS = 5, 30  # of labels side by side
NONE = str(None)  # selection.candidates() writes it for null in a config
CAPTION = """
{metric} of each candidate by swept value. Dots: one for each candidate and fold. Lines: the mean
for each schedule, where candidates have values in common. Scores are from the inner folds if the
study selects, otherwise from the test folds. Scores many times as far from the median as most
others are not shown.
"""


def figure(candidates: pd.DataFrame, facts: StudyFacts) -> Figure:
    """Draw a panel for each model, what else differs but the schedule, and key."""
    others = [name for name in tidy.SETTINGS if name not in ("model", "schedule")]
    shown = ["model", *tidy.varying(candidates, others)]
    keys = [name for name in candidates if name.startswith(SWEPT_COLUMN)]
    panels = [
        (style.title(shown, names), key, group.dropna(subset=[key, "score"]))
        for names, group in candidates.groupby(shown, sort=False)
        for key in keys
    ]
    panels = [(title, key, group) for title, key, group in panels if group[key].nunique() > 1]
    if not panels:
        return style.empty("no swept value differs, or no candidate has a score")
    figure, axes = style.panels(len(panels), sharey=True)
    for panel, (title, key, group) in zip(axes, panels, strict=True):
        x = _positions(panel, parsed(group[key]))
        for schedule, of_schedule in group.groupby("schedule", sort=False):
            places, scores = x[of_schedule.index], facts.metric.scale * of_schedule["score"]
            (dots,) = panel.plot(places, scores, ".", alpha=0.5, label=str(schedule))
            means = scores.groupby(places).mean()
            varied = [of_schedule[other].nunique() for other in keys if other != key]
            # No line through values drawn from a range: candidates differ in their other values.
            if max(varied, default=0) <= 1 or 2 * len(means) <= of_schedule["candidate"].nunique():
                panel.plot(means.index, means, "-", color=dots.get_color())
        panel.set_xlabel(key.removeprefix(SWEPT_COLUMN).replace("_", " "))
        panel.set_title(title, loc="left")
        panel.set_ylabel(facts.metric.axis)
    style.leave_out_farthest(axes[0], facts.metric.scale * candidates["score"])
    if tidy.varying(candidates, ["schedule"]):
        style.legend_below(figure)
    return figure


def _positions(panel: Axes, values: pd.Series) -> pd.Series:
    """Return the places of values on the horizontal axis of a panel, and set its ticks.

    Numbers are placed by value, on a logarithmic axis if they are WIDE apart. If there are other
    values, all are placed side by side.
    """
    distinct = sorted(values.unique(), key=in_order)
    labels = [text_of(value) for value in distinct]
    if all(isinstance(value, Real) and not isinstance(value, bool) for value in distinct):
        least_gap = min(b - a for a, b in pairwise(distinct))
        if distinct[0] > 0 and distinct[-1] / distinct[0] >= WIDE:
            style.plain_logarithmic(panel.xaxis, digits=(1,))
        elif least_gap * MOST_TICKS >= distinct[-1] - distinct[0]:
            panel.set_xticks(distinct, labels)
        return values.astype(float)
    is_crowded = sum(map(len, labels)) > MOST_LETTERS
    panel.set_xticks(range(len(labels)), labels)
    panel.tick_params(axis="x", rotation=90 if is_crowded else 0)
    return values.map({value: place for place, value in enumerate(distinct)}).astype(float)


def in_order(value: Any) -> tuple[int, list[Any], str]:
    """Return a sort key: numbers by size, then texts by the numbers in them, None last."""
    text = str(value)
    found = re.findall(r"(?:(?<![\w.])-)?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text)
    numbers: list[Any] = [value] if isinstance(value, Real) else list(map(float, found))
    return 2 if text == NONE else int(not isinstance(value, Real)), numbers, text


def parsed(values: pd.Series) -> pd.Series:
    """Return swept values, with numbers in place of texts that are numbers.

    All values of a key are read as texts if one of them, perhaps of another model, is no number.
    """
    return values.map(_number_or_text).astype(object).infer_objects()


def _number_or_text(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def text_of(value: Any) -> str:
    """Return the label of a swept value."""
    return f"{value:g}" if isinstance(value, float) and not pd.isna(value) else str(value)
