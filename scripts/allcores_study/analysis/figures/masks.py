"""Draw the masks that were predicted best and worst, each with its image and the true mask."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps

from allcores_study.analysis import style
from allcores_study.tasks.base import WITHOUT_CLASS
from allcores_study.tasks.segmentation import Segmentation

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allcores_study.analysis.products import StudyFacts
    from allcores_study.data.storage import Dataset

TITLE = "the best and the worst masks"
CAPTION = """
Test images with their masks. From top to bottom: the image, if it has one channel or three; the
true mask; the predicted mask. For each model trained with ``{baseline}``, the two best and the two
worst predictions are drawn, by the mean IoU over the classes of the image. Each colour is a class;
white pixels have none.
"""
COLOURS = 20


def figure(
    predictions: pd.DataFrame, datasets: dict[str, Dataset], facts: StudyFacts
) -> Figure | None:
    """Draw a panel for each shown sample: its image, the true mask, the predicted mask."""
    if "shape" not in predictions:
        return None
    inputs = {name: data.inputs for name, data in datasets.items() if data.shape[0] in (1, 3)}
    height = 6.2 if inputs else 4.4
    figure, panels = style.panels_of_samples(predictions, facts.baseline, height)
    for own, group in panels:
        images = inputs.get(group["dataset"].iloc[0])
        style.draw_best_and_worst(own, _best_first(group), functools.partial(_draw, images))
    of_datasets = dict.fromkeys(map(tuple, predictions["output"].dropna()))
    for number, names in enumerate(zip(*of_datasets, strict=True)):
        colour, name = (
            colormaps["tab20"].colors[number % COLOURS],  # type: ignore[attr-defined]
            " or ".join(dict.fromkeys(names)),
        )
        figure.axes[0].plot([], [], "s", color=colour, label=style.in_legend(name))
    style.legend_below(figure)
    return figure


def _draw(images: np.ndarray | None, panel: Axes, scored: tuple[float, Any]) -> str:
    iou, row = scored
    image = None if images is None else images[row.sample]
    panel.imshow(_picture(image, row), interpolation="nearest")
    panel.set_axis_off()
    return f"mean IoU {iou:.1%}"


def _best_first(group: pd.DataFrame) -> list[tuple[float, Any]]:
    """Return [(mean IoU, row of the predictions), ...], the best first, of images that have one."""
    classes = 1 + max(_largest(row) for row in group.itertuples())
    scored = [
        (Segmentation(classes).measured(row.true[None], row.predicted[None])["mean_iou"], row)
        for row in group.itertuples()
    ]
    return sorted((pair for pair in scored if pair[0] is not None), key=lambda pair: -pair[0])


def _largest(row: Any) -> int:
    """Return the largest class number in the masks of a row."""
    true = row.true[row.true != WITHOUT_CLASS]
    return int(max(true.max(initial=0), row.predicted.max(initial=0)))


def _picture(image: np.ndarray | None, row: Any) -> np.ndarray:
    """Return the image, the true mask and the predicted one below each other, (..., W, 3)."""
    height, width = row.shape
    masks = [np.reshape(mask, (height, width)) for mask in (row.true, row.predicted)]
    colours = np.array(colormaps["tab20"].colors[:COLOURS])  # type: ignore[attr-defined]
    gap = np.ones((max(1, height // 16), width, 3))
    parts = [np.where((m == WITHOUT_CLASS)[..., None], 1.0, colours[m % COLOURS]) for m in masks]
    above = [] if image is None else [_in_colour(image), gap]
    return np.concatenate([*above, parts[0], gap, parts[1]])


def _in_colour(image: np.ndarray) -> np.ndarray:
    """Return an image (1 or 3, H, W) as (H, W, 3), its least value black and its largest white."""
    low, high = float(image.min()), float(image.max())
    shown = (image.astype(float) - low) / ((high - low) or 1.0)
    return np.broadcast_to(shown, (3, *image.shape[1:])).transpose(1, 2, 0)
