"""Plot held-out scores: every run as a dot, and the mean of repeats with its 95 % interval."""

import numpy as np

from allcores.analysis import comparison, style, tidy

TITLE = "{metric}"
SECTION = "{metric}"
WHEN = "learnable"
ORDER = 56
LEADING = 5
CAPTION = """
Held-out {metric}. Faint dots are single runs (folds and seeds); the marker is their mean and the
bar its 95 % interval, corrected for folds that share training samples. Runs that diverged are
counted in the label, not averaged. Colour and marker tell the strategies apart.
"""


def figure(runs, facts):
    """One panel per dataset and model; a row per schedule and setup."""
    colours = style.strategies(runs["strategy"])
    shown = ["model", *tidy.varying(runs, ["dataset", "train_size"])]
    groups = list(runs.groupby(shown, sort=False))
    rows = max(group.groupby(tidy.SETTINGS).ngroups for _, group in groups)
    height, sharex = 0.9 + 0.36 * rows, runs["dataset"].nunique() == 1
    figure, axes = style.panels(len(groups), width=4.4, height=height, columns=3, sharex=sharex)
    for panel, (names, group) in zip(axes, groups, strict=True):
        labels = []
        for row, (_, repeats) in enumerate(group.groupby(tidy.SETTINGS, sort=False)):
            colour, marker = colours[repeats["strategy"].iloc[0]]
            scores = facts.metric.scale * repeats["score"].to_numpy()
            mean = np.nanmean(scores) if not np.isnan(scores).all() else np.nan
            ends = facts.metric.scale * np.array(comparison.interval(repeats, facts.metric))
            panel.plot(scores, np.full(len(scores), row), "o", color=colour, alpha=0.3, ms=4)
            panel.errorbar(
                mean,
                row,
                xerr=[[mean - ends[0]], [ends[1] - mean]],
                fmt=marker,
                color=colour,
                capsize=3,
                ms=7,
                mec="white",
            )
            diverged = repeats["diverged"].count()
            mark = f" ({diverged} of {len(repeats)} diverged)" if diverged else ""
            schedule, setup = repeats["schedule"].iloc[0], style.setup_text(repeats.iloc[0])
            labels.append(f"{schedule}: {setup}{mark}")
        style.name_panel(panel, shown, names)
        panel.set(
            xlabel=f"held-out {facts.metric.axis}",
        )
        style.name_rows(panel, labels)
    return figure
