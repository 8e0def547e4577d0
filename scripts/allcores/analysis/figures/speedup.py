"""Plot the speedup of every layout of using the cores."""

import pandas as pd

from allcores.analysis import style, tidy

TITLE = "speedup"
SECTION = "speed"
WHEN = "several_ways"
ORDER = 21
LEADING = 3
CAPTION = """
Speedup of each layout of using the cores, from images per second after the first epoch.
**Baseline: {baseline} with its fewest cores.** Bars reach from the slowest to the fastest run
of a cell; the dashed line is ideal scaling, or, where strategies are rows, the baseline. Hollow
marks: more processes than cores, or cores shared with others.
"""

LABELLED = 6  # more points in a panel would write over each other


def figure(speed_table, facts):
    """One panel per dataset and model; bars from the slowest to the fastest run.

    A few strategies on several numbers of cores each are lines; else each layout is a row.
    """
    shown = ["model", *tidy.varying(speed_table, ["dataset", "train_size"])]
    groups = list(speed_table.groupby(shown, sort=False))
    counts = speed_table.groupby("strategy")["cores"].nunique()
    draw = _lines if counts.max() > 1 and len(counts) <= LABELLED else _rows
    figure, axes = draw(
        [group for _, group in groups], speed_table, f"speedup over {facts.baseline}"
    )
    if speed_table["note"].notna().any():
        style.explain_hollow(axes[0])
    for panel, (names, _) in zip(axes, groups, strict=True):
        panel.set_title(style.title(shown, names))
    style.legend_below(figure, axes)
    return figure


def _lines(groups, table, quantity):
    """Speedup against cores, beside ideal scaling."""
    colours = style.strategies(table["strategy"])
    figure, axes = style.panels(len(groups), sharex=True, sharey=True)
    most = table["cores"].max()
    for panel, group in zip(axes, groups, strict=True):
        base_cores = (group["cores"] * group["efficiency"] / group["speedup"]).dropna()
        for least in base_cores[:1]:
            panel.plot([least, most], [1, most / least], color="0.6", lw=1, ls="--", label="ideal")
        # Nodes are a line of their own, and so are workers of several threads beside those of one.
        apart = ["nodes"] if group["nodes"].nunique() > 1 else []
        if group.duplicated(["strategy", "cores", *apart]).any():
            apart.append("threads")
        for names, line in group.groupby(["strategy", *apart], sort=False):
            line = line.sort_values("cores")
            colour, marker = colours[names[0]]
            told = dict(zip(apart, names[1:], strict=True))
            label = names[0]
            if told.get("nodes", 1) > 1:
                label += f" on {told['nodes']} nodes"
            if "threads" in told:
                label += f", {told['threads']} threads per worker"
            panel.errorbar(
                *(line["cores"], line["speedup"], _reach(line)),
                color=colour,
                marker=marker,
                ls=style.dash(told.get("nodes", 1), sorted(group["nodes"].unique())),
                capsize=3,
                label=label,
            )
            noted = line[line["note"].notna()]
            panel.plot(
                *(noted["cores"], noted["speedup"], marker),
                mfc="white",
                mec=colour,
                zorder=3,
            )
            if len(group) <= LABELLED and pd.notna(line["speedup"].iloc[-1]):
                _label(panel, line.iloc[-1], colour)
        panel.set_xlabel("cores")
        panel.set_xticks(sorted(table["cores"].unique()))
        panel.margins(x=0.3)
    # Once all are drawn: they share the axis, and setting one end of it fixes the other.
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel(quantity)
    return figure, axes


def _rows(groups, table, quantity):
    """A row per layout of using the cores, with its number."""
    colours = style.strategies(table["strategy"])
    height = 1 + 0.28 * max(map(len, groups))
    figure, axes = style.panels(len(groups), width=5, height=height, columns=2, sharex=True)
    for panel, group in zip(axes, groups, strict=True):
        panel.axvline(1, color="0.6", lw=1, ls="--")
        for row, (_, layout) in enumerate(group.iterrows()):
            colour, marker = colours[layout["strategy"]]
            panel.errorbar(
                *(layout["speedup"], row),
                xerr=[[reach] for reach in _reach(layout)],
                color=colour,
                marker=marker,
                mfc=colour if pd.isna(layout["note"]) else "white",
                capsize=3,
            )
            panel.annotate(
                layout["note"] if pd.isna(layout["speedup"]) else f"{layout['speedup']:.2f} x",
                (1, row),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=9,
            )
        style.name_rows(panel, [style.layout(layout) for _, layout in group.iterrows()])
        panel.set_xlabel(quantity)
    fastest = table["fastest"] * table["speedup"] / table["images_per_second"]
    axes[0].set_xlim(0, 1.05 * fastest.max() if fastest.notna().any() else 1)
    return figure, axes


def _reach(rows):
    """From the median down to the slowest and up to the fastest run."""
    speed = rows["images_per_second"]
    return [
        rows["speedup"] * (1 - rows["slowest"] / speed),
        rows["speedup"] * (rows["fastest"] / speed - 1),
    ]


def _label(panel, point, colour):
    panel.annotate(
        f"{point['speedup']:.2f} x",
        (point["cores"], point["speedup"]),
        xytext=(7, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        fontsize=9,
    )
