"""Draw some samples and what came out: those that were reconstructed best and worst."""

import numpy as np

from allcores.analysis import style

TITLE = "the best and the worst reconstructions"
SECTION = "{metric}"
WHEN = "inputs"
ORDER = 69
LEADING = 7
CAPTION = """
Held-out samples and what the network made of them: of each model, trained with ``{baseline}``, the
two that were reconstructed best and the two worst. Images: above what came in, below what came out.
Other samples: grey what came in, black what came out. All are scaled as the network gets them.
"""
SHOWN = 2  # of the best, and of the worst


def figure(predictions, facts):
    """A panel for each shown sample of a dataset and model."""
    pooled = predictions[predictions["strategy"] == facts.baseline]
    figure, panels = style.panels_of(
        pooled,
        each=2 * SHOWN,
        most=style.MOST_PANELS // 2,
        width=2.4,
        height=3.6,
        columns=2 * SHOWN,
    )
    for own, group in panels:
        kept = group[group["output"].map(len) > 0].sort_values("predicted", kind="stable")
        rows = [*kept.itertuples()]
        rows = rows if len(rows) <= 2 * SHOWN else [*rows[:SHOWN], *rows[-SHOWN:]]
        for panel, row in zip(own, rows, strict=False):
            _draw(panel, row)
            panel.set_title(f"{panel.get_title()}\nerror {row.predicted:.3g}")
        for panel in own[len(rows) :]:
            panel.set_axis_off()
            panel.set_title("")
    return figure


def _draw(panel, row):
    shape = tuple(row.shape)
    if len(shape) == 3 and shape[0] in (1, 3):
        pictures = [
            np.reshape(values, shape).transpose(1, 2, 0) for values in (row.input, row.output)
        ]
        low, high = pictures[0].min(), pictures[0].max()
        gap = np.full((max(1, shape[1] // 16), *pictures[0].shape[1:]), high)
        both = np.concatenate([pictures[0], gap, pictures[1]])
        both = np.clip((both - low) / ((high - low) or 1.0), 0, 1)
        panel.imshow(both if shape[0] == 3 else both[..., 0], cmap="gray", vmin=0, vmax=1)
        panel.set_axis_off()
        return
    # Channels of a signal one by one; the last axis goes on.
    for values, look in ((row.input, {"color": "0.6", "lw": 2}), (row.output, {"color": "black"})):
        panel.plot(np.reshape(values, (-1, shape[-1])).T, lw=look.pop("lw", 1), **look)
