"""Plot epochs and seconds to a target accuracy against the number of workers."""

from allcores.analysis import style, tidy

QUANTITIES = {"epochs": "epochs", "seconds": "training time (s)"}


def target_figure(table, target):
    """Two panels per dataset and model."""
    colours = style.strategies(table["strategy"])
    shown = ["model", *tidy.varying(table, ["dataset", "schedule", "train_size"])]
    groups = list(table.groupby(shown, sort=False))
    figure, axes = style.panels(2 * len(groups), columns=2)
    for number, (names, group) in enumerate(groups):
        for panel, (column, label) in zip(axes[2 * number :], QUANTITIES.items(), strict=False):
            for strategy, line in group[group["reached"] > 0].groupby("strategy", sort=False):
                line = line.sort_values("workers")
                colour, marker = colours[strategy]
                panel.plot(
                    line["workers"], line[column], color=colour, marker=marker, label=strategy
                )
            panel.set(
                title=style.title(shown, names),
                xlabel="workers",
                ylabel=f"{label} to {target:.1%}",
                xticks=sorted(table["workers"].unique()),
            )
            panel.set_ylim(bottom=0)
    style.legend_below(figure, axes)
    return figure


if __name__ == "__main__":
    style.save(
        style.unless_empty(
            tidy.read(snakemake.input.table), target_figure, snakemake.params.target
        ),
        snakemake.output,
    )
