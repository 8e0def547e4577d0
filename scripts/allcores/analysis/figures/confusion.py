"""Plot which classes are mistaken for which, pooled over folds, seeds and schedules."""

import seaborn as sns

from allcores.analysis import style

TITLE = "confusion matrix"
SECTION = "{metric}"
WHEN = "classes"
ORDER = 64
CAPTION = """
Confusion matrices on the held-out samples: each row shows, in per cent, what the samples of one
class were predicted to be. Pooled over folds, seeds and schedules of the strategy ``{baseline}``.
Of more than 24 models the first are shown.
"""

MOST_NUMBERS = 12  # classes; with more, the numbers would not fit into their boxes


def figure(confusion, facts):
    """One panel per dataset and model, of the baseline's runs; each row sums to 100 %."""
    pooled = confusion[confusion["strategy"] == facts.baseline]
    letters = pooled["true"].astype(str).str.len().max()
    size = {"width": 4.1 + 0.06 * letters, "height": 3.4 + 0.04 * letters, "columns": 3}
    figure, panels = style.panels_of(pooled, most=style.MOST_PANELS, **size)
    for panel, group in panels:
        counts = group.pivot_table(
            index="true", columns="predicted", values="samples", aggfunc="sum", sort=False
        )
        order = list(dict.fromkeys(group["true"]))
        counts = counts.reindex(index=order, columns=order).fillna(0)
        percent = 100 * counts.div(counts.sum(axis=1), axis=0)
        sns.heatmap(
            percent,
            ax=panel,
            cmap="Greys",
            vmin=0,
            vmax=100,
            annot=len(counts) <= MOST_NUMBERS,
            fmt=".0f",
            annot_kws={"size": min(13, max(7, 84 / len(counts)))},
            square=True,
            cbar=panel is panels[-1][0],
            cbar_kws={"label": "% of the true class"},
        )
        panel.tick_params(axis="y", rotation=0)
        panel.set(xlabel="predicted class", ylabel="")
    figure.axes[0].set_ylabel("true class")
    return figure
