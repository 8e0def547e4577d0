"""Style of the figures: each strategy has one colour and marker, readable in greyscale."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib import ticker

from allcores_study.analysis import tidy
from allcores_study.config import registry

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure

PANEL_WIDTH, PANEL_HEIGHT = 3.6, 3.2  # inches
# For labels other than strategies that define their own look.
MARKERS = "<sD^vP*Xpo>"
# Lines that differ, also without colour: dashes and gaps in points.
GAPS = (8, 2), (1, 4), (6, 2, 1, 2, 1, 2), (2, 2)
DASHES = ["-", "--", ":", "-.", *((0, gaps) for gaps in GAPS)]
# At most, with a panel per model: a hundred take minutes to draw, and nobody reads them.
MOST_PANELS = 24
SHOWN = 2  # best samples of a model that are drawn, and worst ones
MOST_TICKS = 6  # intervals of a numeric axis
FAR = 10  # times the interquartile range of what is drawn
HATCHES = ["", "//", "..", "xx", "\\\\", "oo", "++", "--"]
LEGEND_HANDLE, LEGEND_LETTER, LEGEND_ROW = 0.7, 0.078, 0.19  # inches

sns.set_theme(
    context="notebook",
    style="ticks",
    rc={
        "text.parse_math": False,  # names of classes and columns may have two dollar signs
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "0.92",
        "legend.frameon": False,
        "figure.constrained_layout.use": True,
        "savefig.dpi": 160,
        "svg.fonttype": "none",
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.labelsize": 10,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "legend.fontsize": 9,
    },
)


def strategies(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return strategy -> (colour, marker), the same in every figure of every study.

    A strategy's file defines them. Other labels get the next free ones, in the order of the study.
    """
    free = zip(
        itertools.cycle(sns.color_palette("dark").as_hex()),
        itertools.cycle(MARKERS),
        strict=False,
    )
    known = {name: entry.constants.get("look") for name, entry in registry.strategies().items()}
    return {name: known.get(name) or next(free) for name in dict.fromkeys(names)}


def models(names: Iterable[str]) -> dict[str, str]:
    """Return model -> colour."""
    colours = itertools.cycle(sns.color_palette("colorblind").as_hex())
    return dict(zip(dict.fromkeys(names), colours, strict=False))


def phases(names: Iterable[Any]) -> dict[Any, tuple[tuple[float, float, float], str]]:
    """Return phase -> (colour, hatch)."""
    pairs = zip(itertools.cycle(sns.color_palette("muted")), itertools.cycle(HATCHES), strict=False)
    return dict(zip(names, pairs, strict=False))


def lines(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield (label, strategy, rows by cores) of each line over numbers of cores.

    Each number of nodes has its own line, and so has each number of threads where it is needed.
    """
    split = ["nodes"] if rows["nodes"].nunique() > 1 else []
    if rows.duplicated(["strategy", "cores", *split]).any():
        split.append("threads")
    for names, line in rows.groupby(["strategy", *split], sort=False):
        values = dict(zip(split, names[1:], strict=True))
        label = names[0]
        if values.get("nodes", 1) > 1:
            label += f" on {values['nodes']} nodes"
        if "threads" in values:
            label += f", {values['threads']} threads per worker"
        yield label, names[0], line.sort_values("cores")


def in_legend(name: str) -> str:
    """Return a name as a label; matplotlib leaves those that begin with _ out of legends."""
    return f"\u200b{name}" if name.startswith("_") else name


def dash(value: object, values: Iterable[object]) -> Any:
    """Return the line style of one of several values."""
    return DASHES[list(values).index(value) % len(DASHES)]


def panels(
    count: int,
    width: float = PANEL_WIDTH,
    height: float = PANEL_HEIGHT,
    columns: int = 4,
    **options: Any,
) -> tuple[Figure, list[Axes]]:
    """Make a figure with panels in rows of at most `columns`, and return it and its axes.

    Args:
        count: of the panels.
        width, height: of one panel, in inches.
        options: for plt.subplots().
    """
    columns = min(count, columns)
    rows = -(-count // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, **options
    )
    for unused in axes.flat[count:]:
        unused.set_visible(False)
    for panel in axes.flat:  # also if neighbours share the axis
        panel.tick_params(labelbottom=True, labelleft=True)
        # matplotlib assumes that a label is three letters wide, so 0.0250 and 0.0275 would touch.
        panel.xaxis.set_major_locator(ticker.MaxNLocator(MOST_TICKS))
    return figure, list(axes.flat[:count])


def leave_out_farthest(panel: Axes, values: pd.Series) -> None:
    """Limit the vertical axis of a panel to values that are not very far from most others.

    The score of a run that nearly diverged would make all others look alike.

    Args:
        values: all that is drawn along the axis, in all panels that share it.
    """
    low, high = values.quantile(0.25), values.quantile(0.75)
    near = values[values.between(low - FAR * (high - low), high + FAR * (high - low))]
    if len(near) < values.notna().sum() and near.max() > near.min():
        margin = 0.05 * (near.max() - near.min())
        panel.set_ylim(near.min() - margin, near.max() + margin)


def panels_of(
    frame: pd.DataFrame,
    more: Sequence[str] = ("dataset", "train_size"),
    each: int = 1,
    most: int | None = None,
    **options: Any,
) -> tuple[Figure, list[tuple[Any, pd.DataFrame]]]:
    """Make a figure with panels for each model, and each value of other columns that vary.

    Args:
        frame: with the column model, and those in `more`.
        each: number of panels per group.
        most: number of groups to draw; None: all.
        options: for panels().

    Returns:
        (figure, [(panel, or list of panels if each > 1, its rows of frame), ...])
    """
    shown = ["model", *tidy.varying(frame, more)]
    groups = list(frame.groupby(shown, sort=False))[:most]
    figure, axes = panels(each * len(groups), **options)
    for number, panel in enumerate(axes):
        panel.set_title(title(shown, groups[number // each][0]))
    of_each = [axes[start : start + each] for start in range(0, len(axes), each)]
    pairs = zip(of_each, groups, strict=True)
    return figure, [(own if each > 1 else own[0], rows) for own, (_, rows) in pairs]


def panels_of_samples(
    predictions: pd.DataFrame, baseline: str, height: float
) -> tuple[Figure, list[tuple[list[Axes], pd.DataFrame]]]:
    """Make a figure with panels for the best and the worst samples of the baseline's runs.

    Args:
        predictions: metrics.predictions() of all runs, concatenated.

    Returns:
        See panels_of().
    """
    pooled = predictions[predictions["strategy"] == baseline]
    size: dict[str, Any] = {"width": 2.4, "height": height, "columns": 2 * SHOWN}
    return panels_of(pooled, each=2 * SHOWN, most=MOST_PANELS // 2, **size)


def draw_best_and_worst(
    panels: list[Axes], ranked: list[Any], draw: Callable[[Axes, Any], str]
) -> None:
    """Draw the first and the last of ranked samples, one per panel; other panels stay empty.

    Args:
        ranked: samples, the best first.
        draw: draws a sample on a panel and returns a text for its title.
    """
    shown = ranked if len(ranked) <= 2 * SHOWN else [*ranked[:SHOWN], *ranked[-SHOWN:]]
    for panel, sample in zip(panels, shown, strict=False):
        panel.set_title(f"{panel.get_title()}\n{draw(panel, sample)}")
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
        panel.set_title("")


def band(panel: Axes, x: pd.Series, curve: pd.DataFrame, scale: float = 1.0, **look: Any) -> None:
    """Draw the mean of repeats, and their range as a band.

    Args:
        curve: mean, low and high, from tidy.learning_curve().
        scale: factor for all three.
        look: for panel.plot().
    """
    panel.plot(x, scale * curve["mean"], **look)
    panel.fill_between(
        x, scale * curve["low"], scale * curve["high"], color=look["color"], alpha=0.1
    )


def legend_below(figure: Figure) -> None:
    """Add one legend for all panels below them, each label once."""
    entries: dict[str, Artist] = {}
    for panel in figure.axes:
        entries |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    if entries:
        width = LEGEND_HANDLE + LEGEND_LETTER * max(map(len, entries))
        columns = max(1, min(len(entries), int(figure.get_figwidth() / width)))
        rows = -(-len(entries) // columns)
        figure.set_figheight(figure.get_figheight() + LEGEND_ROW * rows)
        figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns)


def name_rows(panel: Axes, labels: Sequence[str]) -> None:
    """Name the rows 0, 1, ... of a panel, the first at the top."""
    panel.set_yticks(range(len(labels)), labels=labels)
    panel.set_ylim(len(labels) - 0.5, -0.5)


def explain_hollow(panel: Axes) -> None:
    """Add a legend entry for hollow marks, which have a note."""
    panel.plot([], [], "o", mfc="white", mec="0.3", ls="", label="hollow: see the note")


def plain_logarithmic(axis: XAxis | YAxis, digits: Sequence[float] = (1, 2, 5)) -> None:
    """Make an axis logarithmic, with plain numbers, as 0.02, at these leading digits."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(_PlainLogLocator(subs=digits))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(ticker.NullFormatter())


class _PlainLogLocator(ticker.LogLocator):
    """A LogLocator with at least two ticks in view, which may then have other leading digits."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        ticks = super().tick_values(vmin, vmax)
        if sum(vmin <= tick <= vmax for tick in ticks) > 1:
            return ticks
        return [tick for tick in ticker.AutoLocator().tick_values(vmin, vmax) if tick > 0]


def empty(reason: str = "no run ended without diverging") -> Figure:
    """Make a figure with the reason why there is nothing to draw."""
    figure, (panel,) = panels(1)
    panel.set_axis_off()
    panel.text(0.5, 0.5, reason, ha="center", va="center")
    return figure


def save(figure: Figure, stem: str | Path) -> None:
    """Write a figure as PNG and SVG, with the same layout."""
    if (engine := figure.get_layout_engine()) is not None:
        figure.set_dpi(plt.rcParams["savefig.dpi"])
        engine.execute(figure)
    # None, not "none": with any engine, savefig() draws each figure twice. When it ends it calls
    # set_layout_engine(None), which makes a new one where figures have one by default.
    with plt.rc_context({"figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)
        for suffix in ("png", "svg"):
            figure.savefig(f"{stem}.{suffix}")
    plt.close(figure)


def setup_text(row: pd.Series) -> str:
    """Return a strategy with its workers and threads, in words: "ddp, 2 workers"."""
    text = row["strategy"]
    if row["workers"] > 1:
        text += f", {row['workers']} workers"
    if row["nodes"] > 1:
        text += f" on {row['nodes']} nodes"
    if str(row["threads"]) != "1":
        text += f", {row['threads']} threads{' each' if row['workers'] > 1 else ''}"
    return text


UNITS = {"train_size": "samples", "nodes": "nodes", "workers": "workers", "threads": "threads"}


def title(columns: Sequence[str], values: Iterable[object]) -> str:
    """Return the title of a panel: "lenet" or "lenet, 1000 samples"."""
    return ", ".join(
        f"{value} {UNITS[column]}" if column in UNITS and value != "all" else str(value)
        for column, value in zip(columns, values, strict=True)
    )
