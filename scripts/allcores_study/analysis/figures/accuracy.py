"""Plot the scores of all models: every run as a dot, the mean with its 95 % interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.analysis import comparison, style, tidy
from allcores_study.config import grid

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts

TITLE = "{metric}"
CAPTION = """
{metric} on the test folds, the best at the top. Faint dots: single runs (folds and seeds). Large
dot: their mean. Bar: its 95 % interval, corrected for folds that share training samples. Colour:
the model.
"""
MOST_ROWS = 40  # if there are more, the best are drawn
BELOW, ABOVE = 0.24, 0.3  # of a row: single runs, and published scores
RUN: dict[str, Any] = {"marker": "o", "ls": "", "alpha": 0.4, "ms": 4, "mec": "none"}
MEAN: dict[str, Any] = {"fmt": "o", "capsize": 3, "ms": 7, "mec": "white"}
REPEATS = {"split": "fold", "seed": "seed"}


def figure(runs: pd.DataFrame, classes: pd.DataFrame, facts: StudyFacts) -> Figure:
    """Draw one panel per dataset and training-set size: a row per model, schedule and setup."""
    colours = style.models(runs["model"])
    places = list(runs.groupby(["dataset", "train_size"], sort=False))
    most = min(MOST_ROWS, max(group.groupby(tidy.SETTINGS).ngroups for _, group in places))
    figure, panels = style.panels(len(places), width=7, height=1.1 + 0.3 * most, columns=1)
    named = tidy.varying(runs, ["schedule", "strategy", "nodes", "workers", "threads"])
    if repeated := tidy.varying(runs, REPEATS):
        _explain(panels[0], " and ".join(REPEATS[name] for name in repeated))
    for panel, ((dataset, train_size), group) in zip(panels, places, strict=True):
        rows = [repeats for _, repeats in group.groupby(tidy.SETTINGS, sort=False)]
        # Rows without a score, NaN, come last.
        means = [-facts.metric.sign * comparison.mean(repeats) for repeats in rows]
        rows = [rows[place] for place in np.argsort(means, kind="stable")]
        rows = rows[:MOST_ROWS]
        for row, repeats in enumerate(rows):
            _draw(panel, row, repeats, colours[repeats["model"].iloc[0]], facts)
        style.name_rows(panel, [_label(repeats, named) for repeats in rows])
        panel.set_xlabel(f"{facts.metric.axis} on the test folds")
        if facts.metric.name == "accuracy" and len(classes):
            _draw_chance(panel, classes[classes["dataset"] == dataset])
        if len(places) > 1:
            panel.set_title(style.title(["dataset", "train_size"], (dataset, train_size)))
    style.legend_below(figure)
    return figure


def _draw(panel: Axes, row: int, repeats: pd.DataFrame, colour: str, facts: StudyFacts) -> None:
    """Draw the runs of one setup, their mean, its interval, and published scores."""
    scores = facts.metric.scale * repeats["score"].to_numpy()
    mean = facts.metric.scale * comparison.mean(repeats)
    low, high = facts.metric.scale * np.array(comparison.interval(repeats, facts.metric))
    panel.plot(scores, np.full(len(scores), row + BELOW), color=colour, **RUN)
    panel.errorbar(mean, row, xerr=[[mean - low], [high - mean]], color=colour, **MEAN)
    for reference in facts.references:
        if reference["model"] == repeats["model"].iloc[0] and "score" in reference:
            score = facts.metric.scale * reference["score"]
            panel.plot(score, row - ABOVE, "v", color="black", ms=5, ls="", label="published")


def _explain(panel: Axes, repeat: str) -> None:
    """Add legend entries for the dots and bars of every row."""
    panel.plot([], [], color="0.3", **RUN, label=f"one {repeat}")
    panel.errorbar([], [], xerr=[], color="0.3", label="mean and its 95 % interval", **MEAN)


def _draw_chance(panel: Axes, classes: pd.DataFrame) -> None:
    """Draw the accuracy of always predicting the most frequent class."""
    first = classes.drop_duplicates(["split", "class"])
    samples = first.groupby("class")["samples"].sum()
    chance, (low, high) = 100 * samples.max() / samples.sum(), panel.get_xlim()
    if low - chance < high - low:
        panel.axvline(chance, color="0.5", ls="--", lw=1, label="always the most frequent class")
    else:  # a line that far away would squeeze all scores together
        panel.set_xlabel(f"{panel.get_xlabel()}; most frequent class: {chance:.1f}")


def _label(repeats: pd.DataFrame, named: list[str]) -> str:
    """Return the model, with the schedule and the setup if these differ between rows."""
    first, diverged = repeats.iloc[0], repeats["diverged"].count()
    parts = [first["model"]]
    if "schedule" in named and first["schedule"] != grid.NO_SCHEDULE.label:
        parts.append(first["schedule"])
    if {*named} - {"schedule"}:
        parts.append(style.setup_text(first))
    mark = f" ({diverged} of {len(repeats)} diverged)" if diverged else ""
    return ", ".join(parts) + mark
