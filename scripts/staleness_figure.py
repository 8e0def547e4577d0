"""Plot how old the weights were from which asynchronous updates were made."""

from allcores.analysis import style, tidy


def staleness_figure(staleness):
    """One panel per dataset and model: share of the updates by staleness, a line per way."""
    colours = style.strategies(staleness["strategy"])
    shown = ["model", *tidy.varying(staleness, ["dataset", "train_size"])]
    groups = list(staleness.groupby(shown, sort=False))
    figure, axes = style.panels(len(groups), width=4.6)
    for panel, (names, group) in zip(axes, groups, strict=True):
        for _, cell in group.groupby(tidy.SPEED_CELL, sort=False):
            first = cell.iloc[0]
            colour, marker = colours[first["strategy"]]
            share = cell[cell["updates"] > 0].groupby("staleness")["updates"].sum()
            panel.plot(
                share.index,
                share / share.sum(),
                color=colour,
                marker=marker,
                ms=5,
                label=style.way(first),
            )
        panel.set(title=style.title(shown, names), xlabel="staleness (updates)", yscale="log")
        panel.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("share of the updates")
    style.legend_below(figure, axes)
    return figure


if __name__ == "__main__":
    style.save(
        style.unless_empty(tidy.read(snakemake.input.staleness), staleness_figure),
        snakemake.output,
    )
