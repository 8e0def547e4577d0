"""Plot scores against each swept value."""

from numbers import Real

import pandas as pd

from allcores.analysis import style
from allcores.analysis.selection import SWEPT

TITLE = "{metric} against swept values"
SECTION = "{metric}"
WHEN = "swept"
ORDER = 58
LEADING = 2
CAPTION = """
{metric} of the candidates against each swept value: a dot for each candidate and fold, and a line
through the means. If the study selects, it is measured on the inner folds of the training part,
else on the held-out part. Hollow, and not in the means: candidates that successive halving
eliminated before they were trained to the end.
"""


def figure(candidates, facts):
    """A panel for each model and key."""
    keys = [name for name in candidates if name.startswith(SWEPT)]
    panels = [
        (model, key, group.dropna(subset=[key, "score"]))
        for model, group in candidates.groupby("model", sort=False)
        for key in keys
    ]
    panels = [(model, key, group) for model, key, group in panels if group[key].nunique() > 1]
    if not panels:
        return style.empty()
    figure, axes = style.panels(len(panels), sharey=True)
    for panel, (model, key, group) in zip(axes, panels, strict=True):
        values = sorted(group[key].unique(), key=_order)
        place = {value: position for position, value in enumerate(values)}
        x = group[key].map(place).astype(float)
        last = group["rung"] == group["rung"].max()
        panel.plot(x[last], facts.metric.scale * group["score"][last], ".", alpha=0.5)
        eliminated = facts.metric.scale * group["score"][~last]
        panel.plot(x[~last], eliminated, "o", mfc="none", ms=4, color="0.6")
        means = facts.metric.scale * group[last].groupby(key)["score"].mean().reindex(values)
        panel.plot(range(len(values)), means, "-", color="0.3")
        panel.set_xticks(range(len(values)), [_text(value) for value in values])
        panel.set_xlabel(key.removeprefix(SWEPT).replace("_", " "))
        panel.set_title(str(model), loc="left")
        panel.set_ylabel(facts.metric.axis)
    return figure


def _order(value):
    return (0, value, "") if isinstance(value, Real) else (1, 0, str(value))


def _text(value):
    return f"{value:g}" if isinstance(value, float) and not pd.isna(value) else str(value)
