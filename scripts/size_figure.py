"""Plot the time of an epoch against the number of training samples, with the fitted lines."""

import pandas as pd

from allcores.analysis import style, tidy


def size_figure(timed, fits):
    """One panel per dataset and model; a dot per run, a line per way of using the cores."""
    colours = style.strategies(timed["strategy"])
    shown = ["model", *tidy.varying(timed, ["dataset"])]
    figure, axes = style.panels(timed.groupby(shown).ngroups, width=5)
    most = timed["train_samples"].max()
    for panel, (names, group) in zip(axes, timed.groupby(shown, sort=False), strict=True):
        for _, fit in fits.iterrows():
            here = group[(group[tidy.WAY] == fit[tidy.WAY]).all(axis=1)]
            if here.empty:
                continue
            colour, marker = colours[fit["strategy"]]
            panel.plot(
                *(here["train_samples"], here["epoch_seconds"], marker),
                color=colour,
                ms=5,
                label=style.way(fit),
            )
            ends = fit["intercept_seconds"] + fit["seconds_per_1000"] * pd.Series([0, most]) / 1000
            panel.plot([0, most], ends, color=colour)
        panel.set(title=style.title(shown, names), xlabel="training samples")
        panel.set_ylim(bottom=0)
    axes[0].set_ylabel("seconds per epoch")
    style.legend_below(figure, axes)
    return figure


if __name__ == "__main__":
    timed = tidy.timed(tidy.read(snakemake.input.runs), tidy.read(snakemake.input.epochs))
    style.save(
        style.unless_empty(timed, size_figure, tidy.read(snakemake.input.fits)), snakemake.output
    )
