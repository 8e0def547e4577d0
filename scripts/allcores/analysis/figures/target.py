"""Plot epochs and seconds to a target accuracy against the number of workers."""

from allcores.analysis import style, tidy

TITLE = "epochs and time to an accuracy"
SECTION = "{metric}"
WHEN = "target_accuracy"
ORDER = 41
CAPTION = """
Epochs, and seconds of training, until the held-out accuracy first reaches {target:.1%}, against
the number of workers: medians over the runs that reach it.
"""

QUANTITIES = {"epochs": "epochs", "seconds": "training time (s)"}


def figure(target_table, facts):
    """Two panels per dataset and model."""
    colours = style.strategies(target_table["strategy"])
    shown = ["model", *tidy.varying(target_table, ["dataset", "schedule", "train_size"])]
    groups = list(target_table.groupby(shown, sort=False))
    figure, axes = style.panels(2 * len(groups), columns=2)
    for number, (names, group) in enumerate(groups):
        for panel, (column, label) in zip(axes[2 * number :], QUANTITIES.items(), strict=False):
            for strategy, line in group[group["reached"] > 0].groupby("strategy", sort=False):
                line = line.sort_values("workers")
                colour, marker = colours[strategy]
                panel.plot(
                    line["workers"], line[column], color=colour, marker=marker, label=strategy
                )
            style.name_panel(panel, shown, names)
            panel.set(
                xlabel="workers",
                ylabel=f"{label} to {facts.target:.1%}",
                xticks=sorted(target_table["workers"].unique()),
            )
            panel.set_ylim(bottom=0)
    style.legend_below(figure, axes)
    return figure
