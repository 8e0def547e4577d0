"""Plot accuracy per class for every combination of settings."""

import seaborn as sns

from allcores.analysis import style, tidy

TITLE = "accuracy per class"
SECTION = "{metric}"
WHEN = "classes"
ORDER = 63
CAPTION = """
Held-out accuracy per class, in per cent of the class's samples, pooled over folds and seeds.
"""

MOST_NUMBERS = 20  # classes; with more, the numbers would not fit into their boxes


def figure(per_class_table):
    """A heat map: a row per combination of settings, a column per class."""
    columns = per_class_table.columns.difference(tidy.SETTINGS, sort=False)
    names = [name.removeprefix(tidy.CLASS) for name in columns]
    varying = tidy.varying(per_class_table, ["dataset", "train_size"])
    labels = [
        ", ".join(
            [row["model"], row["schedule"], style.setup_text(row), *(str(row[v]) for v in varying)]
        )
        for _, row in per_class_table.iterrows()
    ]
    width = 3.2 + 0.55 * min(len(names), MOST_NUMBERS)
    figure, (panel,) = style.panels(1, width=width, height=1.2 + 0.3 * len(per_class_table))
    sns.heatmap(
        100 * per_class_table[columns].set_axis(names, axis=1),
        ax=panel,
        cmap="viridis",
        vmax=100,
        annot=len(names) <= MOST_NUMBERS,
        fmt=".0f",
        annot_kws={"size": 8},
        yticklabels=labels,
        cbar_kws={"label": "accuracy (%)"},
    )
    panel.set(xlabel="class", ylabel="")
    panel.tick_params(axis="x", rotation=90 if max(map(len, names)) > 3 else 0)
    return figure
