"""The result of a study, in a sentence or two for each model. No torch."""

import pandas as pd

from allcores.analysis import comparison, style, tidy
from allcores.analysis.tables import sweep
from allcores.analysis.tables.models import BEST, NOT_RANKED, UNDEFINED
from allcores.analysis.words.wording import (
    WIDEST,
    base_of,
    by_model,
    count,
    mark,
    one_of,
    p_value,
    without_repeats,
)


def sentences(frames, facts):
    """Best scores; then per model the fastest setups for one run and for many, and the cost."""
    differences = frames.get("comparison_table")
    if "sweep_table" in frames:
        yield from sweep.chosen(frames["sweep_table"])
    if "models_table" in frames:
        yield from _best_models(frames["models_table"], facts.metric)
    elif "accuracy_table" in frames:
        yield from _best_scores(frames["runs"], facts.metric)
    for names, group in by_model(frames["speed_table"]):
        setups, group = len(group), group[group["note"] != tidy.OTHER_CONDITIONS]
        base = base_of(group, facts)
        if base is None:
            yield f"{names}: no comparison of speed: the baseline {facts.baseline} is missing."
            continue
        if len(group) == 1 < setups:
            yield (
                f"{names}: no comparison of speed: the setups were timed under different "
                "conditions."
            )
            continue
        if len(group) == 1:
            continue
        group = without_repeats(group, base)
        fastest = group.sort_values("samples_per_second", ascending=False).iloc[0]
        efficient = group.loc[(group["samples_per_second"] / group["cores"]).idxmax()]
        cost = ""
        if fastest.name != base.name and differences is not None:
            cost = _cost(differences, fastest, facts)
        for_one, for_many = _for_one_run(fastest, base, group), _for_many_runs(efficient, base)
        yield f"{names}: {for_one}{cost} {for_many}"


OPTIMISTIC = "The best of several held-out scores is an optimistic estimate."
# Findings on models that are not the best, in the order in which they are told.
OF_OTHERS = {
    comparison.DIFFERS: "Significantly worse",
    comparison.NOT_SIGNIFICANT: "No significant difference",
    comparison.IDENTICAL: "The same in every pair of runs",
    comparison.UNKNOWN: "Not tested, because the pairs of runs show no spread",
    NOT_RANKED: "Not ranked, because runs diverged",
    UNDEFINED: "Not ranked, because it is not defined in all runs",
}
MOST_NAMES = 6  # for each finding


def _best_models(table, metric):
    """The best model and schedule on each dataset, and which others differ from it."""
    shown = tidy.varying(table, ["dataset", "train_size"])
    named = ["model", *tidy.varying(table, ["schedule"])]  # as "lenet with cosine"
    for _, group in table.groupby(["dataset", "train_size"], sort=False):
        first = group.iloc[0]
        where = f", {style.title(shown, first[shown])}" if shown else ""
        is_chosen = first["finding"] == BEST and len(group) > 1
        parts = [f"{'Best held-out' if is_chosen else 'Held-out'} {metric}{where}: "]
        parts[0] += f"{' with '.join(first[named])}, {_score(first, metric)}."
        for finding, title in OF_OTHERS.items():
            rows = group[group["finding"] == finding]
            names = [
                f"{' with '.join(row[named])}{_difference(row, metric)}"
                for _, row in rows.iterrows()
            ]
            if names and (is_chosen or finding not in (NOT_RANKED, UNDEFINED)):
                if len(names) > MOST_NAMES:
                    names[MOST_NAMES - 1 :] = [f"{len(names) - MOST_NAMES + 1} more"]
                parts.append(f"{title}: {'; '.join(names)}.")
        yield " ".join([*parts, *([OPTIMISTIC] if is_chosen else [])])


def _score(row, metric):
    if pd.isna(row["score"]):
        return "none: all runs diverged"
    return metric.text(row["score"], 1) + _interval(row["low_95"], row["high_95"], metric)


def _interval(low, high, metric):
    """In brackets; "": there is none, or it says nothing."""
    if pd.isna(low) or (metric.unit and high - low > WIDEST):
        return ""
    return f" (95 % interval: {metric.interval(low, high)})"


def _difference(row, metric):
    """How far a model is from the best one, in brackets; "": that was not tested."""
    if pd.isna(row["p_corrected"]):
        return ""
    text = f"{metric.points(abs(row['difference']), 1)}, corrected {p_value(row['p_corrected'])}"
    is_wide = metric.unit and row["at_most"] > WIDEST
    if row["finding"] == comparison.NOT_SIGNIFICANT and not is_wide:
        text += f", at most {metric.points(row['at_most'], 1)}"
    return f" ({text})"


def _best_scores(runs, metric):
    """The best score of each model, and the schedules and setups that reach it."""
    groups = runs[runs["score"].notna()].groupby(tidy.SETTINGS, sort=False)
    rows = [
        dict(zip(tidy.SETTINGS, settings, strict=True))
        | {"score": group["score"].mean(), "interval": comparison.interval(group, metric)}
        for settings, group in groups
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
        setups = [f"{row['schedule']}, {style.setup_text(row)}" for _, row in ties.iterrows()]
        title, interval = style.title(shown, first[shown]), _interval(*first["interval"], metric)
        listed.append(f"{title} {metric.text(best, 1)}{interval} with {one_of(setups)}")
    if len(table) == 1:
        yield f"Held-out {metric}: {listed[0]}."
        return
    caution = f" {OPTIMISTIC}" if len(table) > len(listed) else ""
    yield f"Best held-out {metric} of each model: {'; '.join(listed)}.{caution}"


def _for_one_run(fastest, base, group):
    if fastest.name == base.name:
        disturbed = (group["note"] == "contended").any()
        doubt = " (uncertain: the runs of other ways were disturbed)" if disturbed else ""
        return (
            f"for a single run, nothing is faster than {style.setup_text(base)}{mark(base)}{doubt}."
        )
    return (
        f"a single run is fastest with {style.setup_text(fastest)}{mark(fastest)}: "
        f"{fastest['speedup']:.2f} x the speed of {style.setup_text(base)}{mark(base)}"
        f"{_doubt(fastest, base, 1, 1)}."
    )


def _doubt(better, base, divisor, base_divisor):
    """Why it is uncertain that a setup beats the baseline in samples/s per divisor; or ""."""
    if min(better["runs"], base["runs"]) == 1:
        return " (uncertain: too few runs)"
    is_apart = better["slowest"] / divisor > base["fastest"] / base_divisor
    return "" if is_apart else " (uncertain: the ranges of the runs overlap)"


def _for_many_runs(efficient, base):
    if efficient.name == base.name:
        return (
            f"For many runs, {style.setup_text(base)} on {count(base['cores'], 'core')} per run "
            "gives the most throughput: run folds and seeds side by side."
        )
    return (
        f"For many runs, {style.setup_text(efficient)} gives the most throughput: "
        f"{efficient['samples_per_second'] / efficient['cores']:,.1f} samples/s per core against "
        f"{base['samples_per_second'] / base['cores']:,.1f} with {style.setup_text(base)}"
        f"{_doubt(efficient, base, efficient['cores'], base['cores'])}."
    )


def _cost(differences, fastest, facts):
    """How the leading metric of the fastest setup differs from the baseline's."""
    metric = facts.metric
    columns = tidy.SPEED_SETTINGS
    rows = differences[(differences[columns] == fastest[columns].to_numpy()).all(axis=1)]
    if rows.empty:
        return ""
    significant = rows[rows["finding"] == comparison.DIFFERS]
    if len(significant):
        row = significant.loc[significant["difference"].abs().idxmax()]
        direction = "better" if metric.sign * row["difference"] > 0 else "worse"
        points = metric.points(abs(row["difference"]))
        return f" Its {metric} is {points} {direction} than with {facts.baseline}."
    if (rows["finding"] == comparison.IDENTICAL).all():
        return f" Its {metric} is the same as with {facts.baseline} in every pair of runs."
    uncertain = rows[rows["finding"] == comparison.NOT_SIGNIFICANT]
    if len(uncertain):
        limit = metric.points(uncertain["at_most"].max(), 1)
        return (
            f" Its {metric} does not differ significantly from that with {facts.baseline}; "
            f"a difference of up to {limit} is possible."
        )
    return f" Whether its {metric} differs cannot be tested: the pairs of runs show no spread."
