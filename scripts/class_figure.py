"""Plot accuracy per class of every cell of a study."""

import seaborn as sns

from allcores.analysis import style, tidy

MOST_NUMBERS = 20  # classes; with more, the numbers would not fit into their boxes


def class_figure(table):
    """A heat map: a row per cell, a column per class."""
    columns = table.columns.difference(tidy.CELL, sort=False)
    names = [name.removeprefix(tidy.CLASS) for name in columns]
    varying = tidy.varying(table, ["dataset", "train_size"])
    labels = [
        ", ".join([row["model"], row["schedule"], style.way(row), *(str(row[v]) for v in varying)])
        for _, row in table.iterrows()
    ]
    width = 3.2 + 0.55 * min(len(names), MOST_NUMBERS)
    figure, (panel,) = style.panels(1, width=width, height=1.2 + 0.3 * len(table))
    sns.heatmap(
        100 * table[columns].set_axis(names, axis=1),
        ax=panel,
        cmap="viridis",
        vmax=100,
        annot=len(names) <= MOST_NUMBERS,
        fmt=".0f",
        annot_kws={"size": 8},
        yticklabels=labels,
        cbar_kws={"label": "held-out accuracy (%)"},
    )
    panel.set(xlabel="class", ylabel="")
    panel.tick_params(axis="x", rotation=90 if max(map(len, names)) > 3 else 0)
    return figure


if __name__ == "__main__":
    style.save(style.unless_empty(tidy.read(snakemake.input.table), class_figure), snakemake.output)
