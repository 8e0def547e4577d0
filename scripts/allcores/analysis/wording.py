"""Numbers and names in words, for sentences. No torch."""

import pandas as pd

from allcores.analysis import style, tidy

# A possible difference, or an interval, that covers more of all scores than this says nothing.
WIDEST = 0.5


def p_value(value):
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def comma_separated(values):
    return ", ".join(map(str, values))


def one_of(values, most=3):
    """Equally good alternatives in words: "a, or b, or 3 others"."""
    others = [f"{len(values) - most} others"] if len(values) > most + 1 else values[most:]
    return ", or ".join([*values[:most], *others])


def count(number, noun):
    return f"{number} {noun}{'' if number == 1 else 's'}"


def by_model(table):
    """(what is trained, its rows) for each model, dataset, schedule and size in the table."""
    columns = [c for c in ("model", "dataset", "schedule", "train_size") if c in table]
    shown = ["model", *tidy.varying(table, [c for c in columns if c != "model"])]
    for names, group in table.groupby(shown, sort=False):
        yield style.title(shown, names), group


def mark(row):
    return "" if pd.isna(row["note"]) else f" ({row['note']})"


def base_of(group, facts):
    """The row of the baseline with the fewest cores; None: it is missing."""
    base = group[group["strategy"] == facts.baseline].sort_values("cores", kind="stable")
    return None if base.empty else base.iloc[0]


def possible(limit, metric):
    """How large a difference is possible, in words: they say nothing of one that no score has."""
    least, most = (0, 1) if metric.unit else metric.bounds
    if None not in (least, most) and limit > WIDEST * (most - least):
        return "the runs are too few to say how much it may differ"
    return f"the 95 % interval reaches {metric.points(limit, 1)}"


def comparable(group, base, facts):
    """The rows of a model that compare with a baseline: timed under the same conditions, and other
    than those that compute just what the baseline does."""
    return group[(group["note"] != tidy.OTHER_CONDITIONS) & ~_repeats(group, base, facts)]


def _repeats(group, base, facts):
    """Which rows compute just what the baseline does: a lone worker of a strategy that then has
    nobody to exchange with, with as many threads."""
    if base["strategy"] not in facts.alone or base["workers"] > 1:
        return pd.Series(False, group.index)
    is_lone = group["strategy"].isin(facts.alone) & (group["workers"] == 1)
    return is_lone & (group["threads"] == base["threads"]) & (group.index != base.name)


def left_out(group, base, facts, fastest):
    """A sentence on rows that were timed to be faster than the fastest of comparable(); or ""."""
    faster = group[group["samples_per_second"] > fastest["samples_per_second"]]
    is_other = faster["note"] == tidy.OTHER_CONDITIONS
    repeats, others = faster[_repeats(faster, base, facts) & ~is_other], faster[is_other]
    parts = []
    if len(repeats):
        most = repeats.loc[repeats["samples_per_second"].idxmax()]
        ratio = most["samples_per_second"] / base["samples_per_second"]
        parts.append(
            f"{style.setup_text(most)} computes the same as {style.setup_text(base)} and was timed "
            f"at {ratio:.2f} x: so much do runs vary"
        )
    if len(others):
        names = comma_separated(style.setup_text(row) for _, row in others.iterrows())
        parts.append(f"timed under other conditions and left out: {names}")
    return f" ({'; '.join(parts)})" if parts else ""
