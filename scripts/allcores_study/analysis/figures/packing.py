"""Plot how busy the cores were, one run after the other and packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.analysis import style
from allcores_study.analysis.figures.utilisation import draw

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TITLE = "packed or one after the other"
CAPTION = """
Busy cores over time. Upper panel: one run after the other. Lower panel: the same runs packed onto
the cores. The CPU time of all runs counts, with start-up and evaluation; pauses between invocations
of snakemake are cut out. Solid line: the mean. Dashed line: the cores that could be used.
"""


def figure(
    runs: pd.DataFrame,
    utilisation: pd.DataFrame,
    against_runs: pd.DataFrame,
    against_utilisation: pd.DataFrame,
) -> Figure:
    """Draw two panels with the same time axis."""
    studies = {
        "one after the other": (against_runs, against_utilisation),
        "packed": (runs, utilisation),
    }
    figure, axes = style.panels(2, width=8.5, height=2.4, columns=1, sharex=True)
    minutes = []
    for panel, (title, (study_runs, busy)) in zip(axes, studies.items(), strict=True):
        minutes.append(draw(panel, study_runs, busy))
        setups = dict.fromkeys(style.setup_text(row) for _, row in study_runs.iterrows())
        panel.set_title(f"{title}: {' / '.join(setups)}", loc="left")
    axes[0].set_xlim(0, max(minutes))
    axes[1].set_xlabel("time since the first run began (min)")
    style.legend_below(figure)
    return figure
