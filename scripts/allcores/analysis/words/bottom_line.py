"""What a study comes to, in a sentence or two for each model. No torch."""

import pandas as pd

from allcores.analysis import comparison, style, tidy
from allcores.analysis.words.wording import (
    base_of,
    by_model,
    comma_separated,
    count,
    mark,
    one_of,
    without_repeats,
)


def sentences(found, facts):
    """Best scores; then per model the fastest layout for one run and for all, and its cost."""
    different, single = found.get("comparison_table"), []
    if different is not None:
        yield from _best_scores(found["runs"], facts.metric)
    for names, group in by_model(found["speed_table"]):
        ways, group = len(group), group[group["note"] != tidy.OTHERWISE]
        base = base_of(group, facts)
        if base is None:
            yield f"{names}: {facts.baseline}, by which the others are judged, is missing."
            continue
        if len(group) == 1 < ways:
            yield (
                f"{names}: the ways were timed under different conditions, so that nothing can be "
                "said of which is fastest."
            )
            continue
        if len(group) == 1:
            single.append(f"{names} with {style.layout(base)}{mark(base)}")
            continue
        group = without_repeats(group, base)
        one = group.sort_values("images_per_second", ascending=False).iloc[0]
        many = group.loc[(group["images_per_second"] / group["cores"]).idxmax()]
        cost = "" if one.name == base.name or different is None else _cost(different, one, facts)
        yield f"{names}: {_for_one(one, base)}{cost} {_for_many(many, base)}"
    if single:
        yield (
            f"Trained in one way only, so that nothing can be said of which is fastest: "
            f"{comma_separated(single)}."
        )


def _best_scores(runs, metric):
    """The best score of each model, and with which schedules and ways it is reached."""
    cells = runs[runs["score"].notna()].groupby(tidy.CELL, sort=False)
    rows = [
        dict(zip(tidy.CELL, cell, strict=True))
        | {"score": group["score"].mean(), "reach": comparison.half_width(group)}
        for cell, group in cells
    ]
    if not rows:
        return
    table = pd.DataFrame(rows)
    models = ["dataset", "model", "train_size"]
    shown = ["model", *tidy.varying(runs, ["dataset", "train_size"])]
    listed = []
    for _, group in table.groupby(models, sort=False):
        best = group["score"].max() if metric.sign > 0 else group["score"].min()
        ties = group[comparison.without_rounding(group["score"], best, metric) == 0]
        first = ties.iloc[0]
        reach = "" if pd.isna(first["reach"]) else f" ± {metric.spread(first['reach'])}"
        ways = [f"{row['schedule']}, {style.layout(row)}" for _, row in ties.iterrows()]
        listed.append(
            f"{style.title(shown, first[shown])} {metric.written(best, 1)}{reach} ({one_of(ways)})"
        )
    caution = ""
    if len(table) > len(listed):
        caution = " The best of several by a held-out score is optimistic."
    yield f"Best held-out {metric} of each model: {'; '.join(listed)}.{caution}"


def _for_one(one, base):
    if one.name == base.name:
        return f"for one run nothing was faster than {style.layout(base)}{mark(base)}."
    return (
        f"one run alone is fastest with {style.layout(one)}{mark(one)}, {one['speedup']:.2f} x "
        f"{style.layout(base)}{mark(base)}{_doubt(one, base, 1, 1)}."
    )


def _doubt(better, base, divisor, base_divisor):
    """Why it is not certain that a layout beats the baseline in images/s per divisor; or ""."""
    if min(better["runs"], base["runs"]) == 1:
        return ", by too few runs to be sure"
    apart = better["slowest"] / divisor > base["fastest"] / base_divisor
    return "" if apart else ", which is not certain: the ranges overlap"


def _for_many(many, base):
    if many.name == base.name:
        return (
            f"For all runs together nothing beats {style.layout(base)} on "
            f"{count(base['cores'], 'core')} per run: run folds and seeds side by side."
        )
    return (
        f"For all runs together {style.layout(many)} gets most out of each core: "
        f"{many['images_per_second'] / many['cores']:,.1f} images/s per core against "
        f"{base['images_per_second'] / base['cores']:,.1f} with {style.layout(base)}"
        f"{_doubt(many, base, many['cores'], base['cores'])}."
    )


def _cost(different, one, facts):
    """What the fastest way of one run costs in the leading metric."""
    metric = facts.metric
    same = (different[tidy.SPEED_CELL] == one[tidy.SPEED_CELL].to_numpy()).all(axis=1)
    rows = different[same]
    if rows.empty:
        return ""
    worse = rows[rows["finding"] == comparison.DIFFERS]
    if len(worse):
        row = worse.loc[worse["difference"].abs().idxmax()]
        verb = "gains" if metric.sign * row["difference"] > 0 else "costs"
        return f" It {verb} {metric.points(abs(row['difference']))} of {metric}."
    if (rows["finding"] == comparison.IDENTICAL).all():
        return f" Its {metric} is the same as with {facts.baseline}, run by run."
    unclear = rows[rows["finding"] == comparison.NOT_FOUND]
    if len(unclear):
        reach = metric.points(unclear["at_most"].max(), 1)
        return (
            f" Its {metric} cannot be told apart from that with {facts.baseline}: a difference of "
            f"up to {reach} is possible."
        )
    return f" Nothing can be said of what it costs in {metric}."
