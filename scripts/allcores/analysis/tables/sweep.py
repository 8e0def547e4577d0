"""How good each candidate of a sweep is, and how often it was chosen."""

from pandas.api.types import is_bool_dtype, is_numeric_dtype

from allcores.analysis import style, tidy
from allcores.analysis.html_table import WHOLE, Number, number
from allcores.analysis.metrics import ACCURACY, Metric
from allcores.analysis.selection import SWEPT
from allcores.analysis.words.wording import count

TITLE = "candidates of the sweep"
SECTION = "{metric}"
WHEN = "swept"
ORDER = 57
CAPTION = """
Every candidate of each sweep. *score*: where the study selects, the {metric} on the inner folds of
the training part, a mean over these, over folds and seeds; else the held-out {metric}. *low* and
*high*: its range over folds and seeds. *chosen*: in how many folds it was the best, and was trained
on the whole training part; the {metric} of those that were chosen is in the table of scores.
*epochs*: after which it was last scored, a mean over folds. *core hours*: spent on it.
"""
COMPARED = ("score", "chosen", "core_hours")

# What one candidate is compared with another in.
SAME = ["dataset", "model", "schedule", "strategy", "workers", "threads", "train_size"]


def table(candidates, facts):
    """One row per candidate and cell; see CAPTION. A column swept_KEY for each key."""
    values = [name for name in candidates if name.startswith(SWEPT)]
    groups = candidates.groupby([*SAME, "candidate"], sort=False)
    found = groups.agg(
        **{name: (name, "first") for name in values},
        folds=("score", "size"),
        score=("score", "mean"),
        low=("score", "min"),
        high=("score", "max"),
        chosen=("chosen", lambda each: each.astype(bool).sum() if each.notna().all() else None),
        epochs=("epochs", "mean"),
        core_hours=("core_seconds", lambda each: each.sum() / 3600),
    )
    return found.reset_index().assign(metric=facts.metric.name)


def sentences(sweep_table, facts):
    """What was chosen, and what choosing has cost."""
    shown = ["model", *tidy.varying(sweep_table, SAME[:1] + SAME[2:])]
    for names, group in sweep_table.groupby(shown, sort=False):
        title, hours = style.title(shown, names), group["core_hours"].sum()
        of = f"of {count(len(group), 'candidate')}"
        if group["score"].isna().all():
            yield f"{title}: all candidates diverged."
        elif group["chosen"].isna().all():
            best = group.loc[(facts.metric.sign * group["score"]).idxmax()]
            yield (
                f"{title}: {of} {best['candidate']} has the best {facts.metric}, "
                f"{facts.metric.written(best['score'])}; as the luckiest of several that is "
                f"optimistic (`select` judges fairly). {hours:.2g} core-hours."
            )
        else:
            taken = group[group["chosen"] > 0].sort_values("chosen", ascending=False)
            told = [f"{row['candidate']} {row['chosen']:.0f} x" for _, row in taken.iterrows()]
            yield (
                f"{title}: chosen on the training part of each fold, {of}: {', '.join(told)}. "
                f"Choosing took {hours:.2g} core-hours. The other tables and figures are of the "
                "final runs, in each fold with what was chosen there, without the inner runs."
            )


def formats(table):
    """Column -> html_table.Number."""
    metric = Metric.of(table["metric"].iloc[0]) if len(table) else ACCURACY
    written = dict.fromkeys(("score", "low", "high"), number(metric))
    written |= dict.fromkeys(("folds", "chosen", "workers", "threads"), WHOLE)
    swept = [name for name in table if name.startswith(SWEPT)]
    numbers = [
        name for name in swept if is_numeric_dtype(table[name]) and not is_bool_dtype(table[name])
    ]
    written |= dict.fromkeys(numbers, Number("{:g}"))
    written |= {"epochs": Number("{:.3g}")}
    return written | {"core_hours": Number("{:,.3g}", "h")}
