"""Plot the importance of swept keys, and the candidates as lines across the keys."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection
from sklearn.ensemble import RandomForestRegressor
from sklearn.inspection import permutation_importance

from allcores_study.analysis import style
from allcores_study.analysis.figures.sweep import WIDE, in_order, parsed, text_of
from allcores_study.analysis.products import LEAST_CANDIDATES
from allcores_study.analysis.selection import SWEPT_COLUMN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allcores_study.analysis.metrics import Metric
    from allcores_study.analysis.products import Facts

TITLE = "which swept keys mattered"
SECTION = "{metric}"
WHEN = "swept_widely"
ORDER = 59
CAPTION = """
Importance of the swept keys for the mean {metric} (left) and the candidates (right). Bars: how much
worse a random forest predicts the {metric} of the candidates if the values of one key are shuffled
among them (scikit-learn's permutation importance), as a share of all keys' importance. *predicted*:
the share of the variance of {metric} that the forest predicts for candidates that it was not fitted
to. If that is small, the bars mean little. Candidates that were eliminated count with their last
{metric}. Lines: one for each candidate, across the most important keys, eight at most. The thick
line is the best candidate.
"""
MOST_KEYS = 8
TREES, REPEATS = 100, 10


def figure(candidates: pd.DataFrame, facts: Facts) -> Figure:
    """Draw two panels for each model whose candidates differ in several keys."""
    swept = [
        (model, _of_candidates(group)) for model, group in candidates.groupby("model", sort=False)
    ]
    swept = [
        (model, frame)
        for model, frame in swept
        if len(frame.columns) > 2 and len(frame) >= LEAST_CANDIDATES
    ]
    if not swept:
        return style.empty(f"fewer than {LEAST_CANDIDATES} candidates have a score")
    figure, axes = style.panels(2 * len(swept), columns=2, width=5.2)
    for place, (model, frame) in enumerate(swept):
        shares, predicted = importance(frame)
        left, right = axes[2 * place : 2 * place + 2]
        order = shares.sort_values(ascending=False).index
        left.barh(range(len(order)), 100 * shares[order], color="0.4")
        left.set_yticks(range(len(order)), [_name(key) for key in order])
        left.invert_yaxis()
        left.set_xlabel("share of the importance (%)")
        left.set_title(f"{model}: {100 * max(0, predicted):.0f} % predicted", loc="left")
        lines = _draw_candidates(right, frame[[*order[:MOST_KEYS], "score"]], facts.metric)
        figure.colorbar(lines, ax=right, label=facts.metric.axis)
        right.set_title(str(model), loc="left")
    return figure


def importance(frame: pd.DataFrame) -> tuple[pd.Series, float]:
    """Return the importance of each key, and how well a random forest predicts the score.

    Breiman: Random Forests. Machine Learning 45, 2001.

    Args:
        frame: a row per candidate: the keys, and `score`.

    Returns:
        (key -> share of the importance in 0..1, R2 on out-of-bag candidates).
    """
    inputs, scores = frame.drop(columns="score").apply(_numbers), frame["score"].to_numpy()
    scaled = pd.DataFrame({key: _positions(values)[0] for key, values in inputs.items()})
    forest = RandomForestRegressor(TREES, oob_score=True, random_state=0).fit(scaled, scores)
    found = permutation_importance(forest, scaled, scores, n_repeats=REPEATS, random_state=0)
    means = np.maximum(found.importances_mean, 0)
    shares = means / means.sum() if means.sum() else np.zeros_like(means)
    return pd.Series(shares, index=inputs.columns), float(forest.oob_score_)


def _of_candidates(group: pd.DataFrame) -> pd.DataFrame:
    """Return a row per candidate: the keys that differ, and the mean score over folds and seeds."""
    scored = group.dropna(subset=["score"])
    keys = [
        name
        for name in scored
        if name.startswith(SWEPT_COLUMN) and scored[name].nunique(dropna=False) > 1
    ]
    rows = scored.groupby("candidate", sort=False)
    return pd.concat([rows[keys].first(), rows["score"].mean()], axis=1)


def _draw_candidates(panel: Axes, frame: pd.DataFrame, metric: Metric) -> LineCollection:
    """Draw a line per candidate across the keys, and return what a colour bar needs."""
    keys = [*frame.columns[:-1]]
    places = np.stack([_positions(_numbers(frame[key]))[0] for key in keys], axis=1)
    order = np.argsort(metric.sign * frame["score"].to_numpy(), kind="stable")
    scores = metric.scale * frame["score"].to_numpy()[order]
    across = np.broadcast_to(np.arange(len(keys)), places.shape)
    segments: Any = np.stack([across, places], axis=2)[order]
    widths = [1.0] * (len(order) - 1) + [3.0]
    lines = LineCollection(segments, array=scores, cmap="viridis", linewidths=widths)
    panel.add_collection(lines)
    panel.set(xlim=(-0.3, len(keys) - 0.7), ylim=(-0.15, 1.15))
    panel.set_yticks([])
    panel.set_xticks(range(len(keys)), [_name(key) for key in keys], rotation=20)
    for place, key in enumerate(keys):
        for height, end in zip((-0.08, 1.08), _positions(_numbers(frame[key]))[1], strict=True):
            text = _end(frame[key], end)
            panel.text(place, height, text, ha="center", va="center", size=8)
    return lines


def _positions(values: pd.Series) -> tuple[pd.Series, tuple[float | str, float | str]]:
    """Return (the values in 0..1, (the least, the largest)); WIDE ranges become logarithms."""
    numbers, ends = values, (values.min(), values.max())
    if not isinstance(values.iloc[0], Real):
        known = sorted(values.unique(), key=in_order)
        numbers = values.map({value: place for place, value in enumerate(known)})
        ends = known[0], known[-1]
    elif ends[0] > 0 and ends[1] / ends[0] >= WIDE:
        numbers = np.log(values.astype(float))
    numbers = numbers.astype(float)
    spread = numbers.max() - numbers.min()
    return (numbers - numbers.min()) / (spread or 1.0), ends


def _numbers(values: pd.Series) -> pd.Series:
    """Return numbers unchanged; if there are other values, such as None, all become texts."""
    values = parsed(values)
    are_numbers = values.map(lambda value: isinstance(value, Real) and not isinstance(value, bool))
    is_numeric = are_numbers.all() and values.notna().all()
    return values.astype(float) if is_numeric else values.map(text_of)


def _end(values: pd.Series, end: float | str) -> str:
    return f"{end:.3g}" if isinstance(end, float) else end


def _name(key: str) -> str:
    return key.removeprefix(SWEPT_COLUMN).replace("_", " ")
