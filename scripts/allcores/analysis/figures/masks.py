"""Draw some masks, predicted and true: those that were predicted best and worst."""

import numpy as np
from matplotlib import colormaps

from allcores.analysis import style
from allcores.tasks.segmentation import WITHOUT_CLASS, Segmentation

TITLE = "the best and the worst masks"
SECTION = "{metric}"
WHEN = "pixels"
ORDER = 53
LEADING = 6
CAPTION = """
Masks of held-out images, true above and predicted below: of each model, trained with
``{baseline}``, the two that were predicted best and the two worst, by the mean IoU of the classes
of the image. Each colour is a class; white has none.
"""
SHOWN = 2  # of the best, and of the worst
COLOURS = 20


def figure(predictions, facts):
    """A panel for each shown image of a dataset and model, its two masks above each other."""
    pooled = predictions[predictions["strategy"] == facts.baseline]
    figure, panels = style.panels_of(
        pooled,
        each=2 * SHOWN,
        most=style.MOST_PANELS // 2,
        width=2.4,
        height=4.4,
        columns=2 * SHOWN,
    )
    for own, group in panels:
        rows = _best_and_worst(group)
        for panel, (iou, row) in zip(own, rows, strict=False):
            panel.imshow(_picture(row), interpolation="nearest")
            panel.set_title(f"{panel.get_title()}\nmean IoU {iou:.1%}")
        for panel in own:
            panel.set_axis_off()
        for panel in own[len(rows) :]:
            panel.set_title("")
    for number, name in enumerate(pooled["output"].iloc[0]):
        colour = colormaps["tab20"].colors[number % COLOURS]
        figure.axes[0].plot([], [], "s", color=colour, label=str(name))
    style.legend_below(figure)
    return figure


def _best_and_worst(group):
    """[(mean IoU, row of the predictions), ...], the best first."""
    classes = 1 + max(_largest(row) for row in group.itertuples())
    scored = [
        (Segmentation(classes).measured(row.true[None], row.predicted[None])["mean_iou"], row)
        for row in group.itertuples()
    ]
    scored = sorted((pair for pair in scored if pair[0] is not None), key=lambda pair: -pair[0])
    return scored if len(scored) <= 2 * SHOWN else [*scored[:SHOWN], *scored[-SHOWN:]]


def _largest(row):
    """The largest class number in the masks of a row."""
    true = row.true[row.true != WITHOUT_CLASS]
    return int(max(true.max(initial=0), row.predicted.max(initial=0)))


def _picture(row):
    """The true mask above the predicted one, (2 H + gap, W, 3)."""
    height, width = row.shape
    masks = [np.reshape(mask, (height, width)) for mask in (row.true, row.predicted)]
    colours = np.array(colormaps["tab20"].colors[:COLOURS])
    gap = np.ones((max(1, height // 16), width, 3))
    parts = [np.where((m == WITHOUT_CLASS)[..., None], 1.0, colours[m % COLOURS]) for m in masks]
    return np.concatenate([parts[0], gap, parts[1]])
