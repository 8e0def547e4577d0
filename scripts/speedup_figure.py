"""Plot speedup against the number of cores."""

import pandas as pd

from allcores import style, tables

LABELLED = 6  # more points in a panel would write over each other


def speedup_figure(table, baseline):
    """One panel per dataset and model; bars from the slowest to the fastest run."""
    colours = style.strategies(table["strategy"])
    shown = ["model", *tables.varying(table, ["dataset", "train_size"])]
    groups = list(table.groupby(shown, sort=False))
    figure, axes = style.panels(len(groups), sharex=True, sharey=True)
    most = table["cores"].max()
    for panel, (names, group) in zip(axes, groups, strict=True):
        panel.plot([1, most], [1, most], color="0.6", lw=1, ls="--", label="ideal")
        for (strategy, threads), line in group.groupby(["strategy", "threads"], sort=False):
            line = line.sort_values("cores")
            colour, marker = colours[strategy]
            per_image = line["speedup"] / line["images_per_second"]
            panel.errorbar(
                line["cores"],
                line["speedup"],
                yerr=[
                    line["speedup"] - line["slowest"] * per_image,
                    line["fastest"] * per_image - line["speedup"],
                ],
                color=colour,
                marker=marker,
                capsize=3,
                label=strategy if threads == 1 else f"{strategy}, {threads} threads per worker",
            )
            if len(group) <= LABELLED:
                _label(panel, line.iloc[-1], colour)
        panel.set(title=style.title(shown, names), xlabel="cores")
        panel.set_xticks(sorted(table["cores"].unique()))
        panel.margins(x=0.3)
        panel.set_ylim(bottom=0)
    axes[0].set_ylabel(f"speedup over {baseline}")
    style.legend_below(figure, axes)
    return figure


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


if __name__ == "__main__":
    style.save(
        speedup_figure(pd.read_csv(snakemake.input.table), snakemake.params.baseline),
        snakemake.output,
    )
