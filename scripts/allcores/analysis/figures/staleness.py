"""Plot how old the weights were from which asynchronous updates were made."""

from allcores.analysis import style, tidy
from allcores.analysis.words.wording import by_model, count

TITLE = "staleness"
SECTION = "training"
WHEN = "asynchronous"
ORDER = 70
CAPTION = """
Staleness of an update: how many updates others made between the reading of the weights and the
update computed from them. Shown is the share of each staleness among all updates of a strategy
with so many workers, over all runs and epochs. The vertical axis is logarithmic; a staleness that
never occurred has no mark.
"""


def figure(staleness):
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
                label=style.layout(first),
            )
        panel.set(title=style.title(shown, names), xlabel="staleness (updates)")
        style.plain_logarithmic(panel.yaxis)
        panel.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("share of the updates")
    style.legend_below(figure, axes)
    return figure


def sentences(staleness, facts):
    """How stale the updates of each asynchronous layout were."""
    for names, group in by_model(staleness):
        for (strategy, workers), rows in group.groupby(["strategy", "workers"], sort=False):
            updates = rows.groupby("staleness")["updates"].sum()
            mean = (updates.index * updates).sum() / updates.sum()
            yield (
                f"{names}, {strategy} with {count(workers, 'worker')}: "
                f"{updates.get(0, 0) / updates.sum():.0%} of the updates were made from weights "
                f"that nobody had changed meanwhile; staleness was {mean:.2f} updates on average "
                f"and {updates.index.max()} at most."
            )
