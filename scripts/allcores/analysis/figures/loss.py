"""Plot training loss against training time."""

from allcores.analysis import style, tidy

TITLE = "training loss"
SECTION = "training"
ORDER = 23
LEADING = 6
CAPTION = """
Training loss against training time (without evaluation): one marker per epoch, the mean over folds
and seeds; the band is their range. Colour is the strategy; line style distinguishes its schedules,
workers and threads.
"""

# The columns that distinguish the lines of a panel.
LINE = ["strategy", "schedule", "nodes", "workers", "threads"]


def figure(epochs):
    """One panel per dataset and model: the mean over folds and seeds, and their range as a band."""
    epochs = tidy.with_elapsed(epochs)
    colours = style.strategies(epochs["strategy"])
    schedules = epochs["schedule"].unique()
    lines = epochs[LINE].drop_duplicates().groupby("strategy")[LINE[1:]].apply(_tuples)
    shown = ["model", *tidy.varying(epochs, ["dataset", "train_size"])]
    groups = list(epochs.groupby(shown, sort=False))
    figure, axes = style.panels(len(groups))
    for panel, (names, group) in zip(axes, groups, strict=True):
        for _, repeats in group.groupby(tidy.SETTINGS, sort=False):
            first = repeats.iloc[0]
            colour, marker = colours[first["strategy"]]
            line = tidy.learning_curve(repeats, "loss")
            panel.plot(
                line["elapsed"],
                line["mean"],
                color=colour,
                marker=marker,
                ms=4,
                ls=style.dash(tuple(first[LINE[1:]]), lines[first["strategy"]]),
                label=style.setup_text(first)
                + (f" ({first['schedule']})" if len(schedules) > 1 else ""),
            )
            panel.fill_between(line["elapsed"], line["low"], line["high"], color=colour, alpha=0.12)
        style.name_panel(panel, shown, names)
        panel.set(xlabel="training time (s)")
        style.plain_logarithmic(panel.yaxis)
    axes[0].set_ylabel("training loss")
    style.legend_below(figure, axes)
    return figure


def _tuples(rows):
    return list(rows.itertuples(index=False, name=None))
