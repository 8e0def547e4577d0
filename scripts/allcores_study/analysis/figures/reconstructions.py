"""Draw the samples that were reconstructed best and worst, with their reconstructions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.analysis import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import Facts

TITLE = "the best and the worst reconstructions"
SECTION = "{metric}"
WHEN = "inputs"
ORDER = 69
LEADING = 7
CAPTION = """
Test samples and their reconstructions. For each model trained with ``{baseline}``, the two best and
the two worst reconstructions are drawn. Images: the input above, the output below. Other samples:
the input in grey, the output in black. All are scaled as the network gets them.
"""


def figure(predictions: pd.DataFrame, facts: Facts) -> Figure:
    """Draw a panel for each shown sample of a dataset and model."""
    figure, panels = style.panels_of_samples(predictions, facts.baseline, height=3.6)
    for own, group in panels:
        kept = group[group["output"].map(len) > 0].sort_values("predicted", kind="stable")
        style.draw_best_and_worst(own, [*kept.itertuples()], _draw)
    return figure


def _draw(panel: Axes, row: Any) -> str:
    shape = tuple(row.shape)
    if len(shape) == 3 and shape[0] in (1, 3):
        _draw_images(panel, *(np.reshape(values, shape) for values in (row.input, row.output)))
    else:  # each channel of a signal is a line
        rows = [np.reshape(values, (-1, shape[-1])).T for values in (row.input, row.output)]
        panel.plot(rows[0], color="0.6", lw=2)
        panel.plot(rows[1], color="black", lw=1)
    return f"error {row.predicted:.3g}"


def _draw_images(panel: Axes, before: np.ndarray, after: np.ndarray) -> None:
    """Draw an image above another, (1 or 3, H, W) each, on the scale of the first."""
    low, high = before.min(), before.max()
    gap = np.full((len(before), max(1, before.shape[1] // 16), before.shape[2]), high)
    both = np.concatenate([before, gap, after], axis=1).transpose(1, 2, 0)
    both = np.clip((both - low) / ((high - low) or 1.0), 0, 1)
    panel.imshow(both if len(before) == 3 else both[..., 0], cmap="gray", vmin=0, vmax=1)
    panel.set_axis_off()
