"""The findings of a study, in sentences made from its tables, the bottom line first. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pandas as pd

from allcores_study.analysis import comparison, products, style, tidy
from allcores_study.analysis.study import CHECK
from allcores_study.analysis.tables import sweep
from allcores_study.analysis.tables.models import BEST, MISSING, NOT_RANKED, UNDEFINED
from allcores_study.analysis.wording import (
    WIDEST,
    base_of,
    by_model,
    comma_separated,
    comparable,
    count,
    in_a_row,
    left_out,
    mark,
    possible,
)
from allcores_study.config import grid

if TYPE_CHECKING:
    from allcores_study.analysis.metrics import Metric
    from allcores_study.analysis.products import StudyFacts

# Columns of runs.csv in which comparable timings agree -> in words.
MIXED = {
    "machine_host": "the machine",
    "machine_processor": "the processor",
    "machine_torch": "the version of torch",
    "exclusive": "whether they were alone on the machine",
    "pinned": "whether their processes were pinned to cores",
}
OPTIMISTIC = "The best of several scores is an optimistic estimate of its score on new data."
# Finding on a model that is not the best -> in words, in the order of the sentences.
OF_OTHERS = {
    comparison.NOT_SIGNIFICANT: "statistically indistinguishable from it",
    comparison.IDENTICAL: "identical to it in every pair of runs",
    comparison.DIFFERS: "significantly worse",
    comparison.UNKNOWN: "not tested, because the pairs of runs have one difference only",
    NOT_RANKED: "not ranked, because runs diverged",
    MISSING: "not ranked, because runs are missing",
    UNDEFINED: "not ranked, because the score is not defined in all runs",
}
LEFT_OUT = NOT_RANKED, MISSING, UNDEFINED
SMALL = 0.01  # smaller differences, of scores between 0 and 1, only stand in the table
MOST_NAMES = 6  # for each finding
DISTURBED = "the runs were disturbed"


def of_conditions(runs: pd.DataFrame, is_timed: bool = True) -> Iterator[str]:
    """Yield sentences on conditions that differ between runs.

    Args:
        is_timed: whether the study compares speeds.
    """
    for column, condition in MIXED.items() if is_timed else ():
        counts = runs[column].value_counts(sort=False)
        if len(counts) > 1:
            words = {True: "yes", False: "no"}
            values = comma_separated(f"{words.get(v, v)} ({n})" for v, n in counts.items())
            yield f"The runs differ in {condition}, which affects timings: {values}."
    if runs["precision"].nunique() > 1:
        pairs = runs[["model", "precision"]].drop_duplicates().groupby("precision", sort=False)
        listed = "; ".join(f"{name}: {comma_separated(rows['model'])}" for name, rows in pairs)
        yield (
            f"The models were trained in different precisions ({listed}). bf16 rounds, which may "
            "cost accuracy; `precision: fp32` trains all models in fp32."
        )
    if comparison.TEST_SAMPLES in runs and runs["split"].iloc[0].startswith("fold"):
        scored = runs[runs["score"].notna()]
        repeats = scored.groupby([*tidy.SETTINGS, comparison.TEST_SAMPLES]).size()
        if (repeats > 1).any():
            yield (
                "Several seeds have some of the same folds. Runs with the same test samples count "
                "once, as their mean, in tests and intervals."
            )
    unknown = runs[runs["held_out_unknown"] > 0]
    if len(unknown):
        yield (
            f"In {count(len(unknown), 'run')}, up to {unknown['held_out_unknown'].max():,.0f} test "
            "samples have a category that no training sample has; it counted as none."
        )
    resumed = (runs["sessions"].str.count(" ") > 0).sum()
    if resumed:
        yield f"{count(resumed, 'run')} had been interrupted and resumed; their times are sums."
    stopped = runs.loc[runs["stopped_seconds"] > 0, "stopped_seconds"]
    if len(stopped):
        yield (
            f"{count(len(stopped), 'run')} stood still for up to {stopped.max():.0f} s, as after "
            "Ctrl-Z or while the machine was suspended; total times include that, speeds do not."
        )


def of_missing(missing: pd.DataFrame, runs: pd.DataFrame) -> Iterator[str]:
    """Yield sentences on runs that failed and on runs that diverged."""
    if len(missing):
        # Paths begin with the dataset and the model.
        by_label = missing["run"].str.split("/").str[1].value_counts(sort=False)
        listed = comma_separated(f"{number} of {model}" for model, number in by_label.items())
        yield (
            f"INCOMPLETE: {count(len(missing), 'run')} of {len(missing) + len(runs)} failed and "
            f"{'is' if len(missing) == 1 else 'are'} missing here ({listed}), for instance "
            f"{missing['run'].iloc[0]}; {_why_missing(missing.iloc[0])}."
        )
    diverged = runs[runs["diverged"].notna()]
    if len(diverged):
        groups = diverged.groupby(["model", "schedule", "strategy"], sort=False)["diverged"]
        listed = "; ".join(
            f"{model} ({schedule}) with {strategy}: {count(len(places), 'run')}, the first in "
            f"{places.iloc[0]}"
            for (model, schedule, strategy), places in groups
        )
        yield f"DIVERGED (the loss became infinite or NaN) and left out below: {listed}."


def _why_missing(row: pd.Series) -> str:
    if isinstance(row["log"], str):
        return f"the reason is in its log: {row['log']}"
    return "it was not started, because something that it needs had failed"


def lead(frames: dict[str, pd.DataFrame], facts: StudyFacts) -> list[str]:
    """Return the sentences on what is missing or diverged, and the bottom line."""
    missing = of_missing(frames["missing"], frames["runs"])
    return [*missing, *bottom_line(frames, facts)]


def sentences(
    frames: dict[str, pd.DataFrame],
    names: Iterable[str],
    facts: StudyFacts,
    notes: Iterable[str] = (),
) -> list[str]:
    """Return all sentences, those of lead() first.

    Args:
        frames: name of a tidy CSV or table -> its frame; and the facts.
        names: of the products, in the order of the page.
        facts: about the study.
        notes: on the data.
    """
    found = {*frames["models_table"]["finding"]}
    lines = [
        *lead(frames, facts),
        *(f"{CHECK}{note}." for note in notes),
        *([OPTIMISTIC] if BEST in found and not found <= {BEST, *LEFT_OUT} else []),
        *of_conditions(frames["runs"], "speed_table" in frames),
    ]
    for name in names:
        function = getattr(products.load(name), "sentences", None)
        if function and (arguments := products.arguments_of(function, frames)):
            lines += function(**arguments)
    return lines


def bottom_line(frames: dict[str, pd.DataFrame], facts: StudyFacts) -> Iterator[str]:
    """Yield the fastest setups, the best scores, and which candidates were chosen.

    For each model, these are the fastest setups for one run and for many runs, and their cost in
    the score.
    """
    yield from _speeds(frames, facts)
    yield from _best_models(frames["models_table"], facts)
    if "sweep_table" in frames:
        yield from sweep.chosen(frames["sweep_table"])


def _speeds(frames: dict[str, pd.DataFrame], facts: StudyFacts) -> Iterator[str]:
    if "speed_table" not in frames:  # there is only one setup
        return
    for names, rows in by_model(frames["speed_table"]):
        base = base_of(rows, facts)
        if base is None:
            yield f"{names}: speeds are not compared: the baseline {facts.baseline} is missing."
            continue
        group = comparable(rows)
        if len(group) < 2:
            if (rows["note"] == tidy.OTHER_CONDITIONS).any():
                yield (
                    f"{names}: speeds are not compared, because the setups were timed under "
                    "different conditions."
                )
            continue
        fastest = group.loc[group["samples_per_second"].idxmax()]
        efficient = group.loc[(group["samples_per_second"] / group["cores"]).idxmax()]
        cost = ""
        if fastest.name != base.name:
            cost = _cost(frames["accuracy_table"], fastest, facts)
        for_one = _for_one_run(fastest, base, group, left_out(rows, fastest))
        yield f"{names}: {for_one}{cost} {_for_many_runs(efficient, base, group)}"


def _best_models(table: pd.DataFrame, facts: StudyFacts) -> Iterator[str]:
    """Yield the best model and schedule on each dataset, and how the others differ from it.

    p values and the like are left to the table.
    """
    metric, shown = facts.metric, tidy.varying(table, ["dataset", "train_size"])
    if table.empty:
        yield f"No model has a run with the baseline {facts.baseline}, so no score is said."
    named = ["model", *tidy.varying(table, ["schedule"])]  # as "lenet with cosine"
    for _, group in table.groupby(["dataset", "train_size"], sort=False):
        first, others = group.iloc[0], group.iloc[1:]
        where = f" on {style.title(shown, first[shown])}" if shown else ""
        if first["finding"] != BEST and len(others):
            yield f"No model is ranked{where}, because each lacks some scores."
            continue
        name, score = _title(first[named]), f"{metric} {_score(first, facts)}"
        if not len(others):
            yield f"{name} reached{where} {score}."
            continue
        sentences = [f"{name} scored best{where}: {score}."]
        for what, rows in _alike(others, metric).items():
            names = [_title(row[named]) + _distance(row, metric) for row in rows]
            if len(names) > MOST_NAMES:
                names[MOST_NAMES - 1 :] = [f"{len(names) - MOST_NAMES + 1} others"]
            sentences.append(f"{in_a_row(names)} {'is' if len(names) == 1 else 'are'} {what}.")
        yield " ".join(sentences)


def _alike(rows: pd.DataFrame, metric: Metric) -> dict[str, list[pd.Series]]:
    """Group models by finding: words, as in OF_OTHERS -> rows."""
    found: dict[str, list[pd.Series]] = {what: [] for what in OF_OTHERS.values()}
    for _, row in rows.iterrows():
        what = OF_OTHERS[row["finding"]]
        if row["finding"] == comparison.NOT_SIGNIFICANT and not _is_small(row, metric):
            what = f"not significantly worse with {count(int(row['pairs']), 'run')} of each"
        found.setdefault(what, []).append(row)
    return {what: alike for what, alike in found.items() if alike}


def _is_small(row: pd.Series, metric: Metric) -> bool:
    """Return whether the difference to the best model is too small for a sentence."""
    return bool(metric.unit) and abs(row["difference"]) < SMALL


def _distance(row: pd.Series, metric: Metric) -> str:
    """Return how far a model is from the best, in brackets; "": not tested, or small."""
    if pd.isna(row["p_corrected"]) or _is_small(row, metric):
        return ""
    direction = "lower" if row["difference"] < 0 else "higher"
    return f" ({metric.points(abs(row['difference']), 1)} {direction})"


def _title(names: Iterable[str]) -> str:
    """Return a model with its schedule, if that is named and the model is no estimator."""
    return " with ".join(name for name in names if name != grid.NO_SCHEDULE.label)


def _score(row: pd.Series, facts: StudyFacts) -> str:
    metric = facts.metric
    if pd.isna(row["score"]):
        is_diverged = row["finding"] == NOT_RANKED
        diverged = f"none, since runs with {facts.baseline} diverged"
        return diverged if is_diverged else "not defined in any run"
    return metric.text(row["score"], 1) + _interval(row["low_95"], row["high_95"], metric)


def _interval(low: float, high: float, metric: Metric) -> str:
    """Return an interval in brackets; "": there is none, as with one run."""
    if pd.isna(low):
        return ""
    few = "; too few runs to say more" if metric.unit and high - low > WIDEST else ""
    return f" (95 % interval: {metric.interval(low, high)}{few})"


def _for_one_run(fastest: pd.Series, base: pd.Series, group: pd.DataFrame, others: str) -> str:
    """Return which setup is fastest for a single run.

    Args:
        others: from wording.left_out().
    """
    if fastest.name == base.name:
        if (group["note"] == tidy.CONTENDED).any():
            return f"the fastest setup of a single run is unknown, because {DISTURBED}{others}."
        return f"nothing trains a single run faster than {_named(base)}{others}."
    return (
        f"{_named(fastest)} trains a single run fastest, {fastest['speedup']:.2f} times as fast as "
        f"{_named(base)}{_doubt(fastest, base, 1, 1)}{others}."
    )


def _named(row: pd.Series) -> str:
    return f"{style.setup_text(row)}{mark(row)}"


def _doubt(better: pd.Series, base: pd.Series, divisor: float, base_divisor: float) -> str:
    """Return why a setup may not beat the baseline in samples/s per divisor, or ""."""
    if min(better["runs"], base["runs"]) == 1:
        return " (uncertain: too few runs)"
    if tidy.CONTENDED in (better["note"], base["note"]):
        return f" (uncertain: {DISTURBED})"
    is_apart = better["slowest"] / divisor > base["fastest"] / base_divisor
    return "" if is_apart else " (uncertain: the ranges of the runs overlap)"


def _for_many_runs(efficient: pd.Series, base: pd.Series, group: pd.DataFrame) -> str:
    doubt = _doubt_of_many(group)
    if efficient.name == base.name:
        return (
            f"For many runs, {style.setup_text(base)} trains the most per hour, "
            f"{count(base['cores'], 'core')} each, side by side{doubt}."
        )
    return (
        f"For many runs, {style.setup_text(efficient)} trains the most per hour: "
        f"{efficient['samples_per_second'] / efficient['cores']:,.1f} samples/s per core against "
        f"{base['samples_per_second'] / base['cores']:,.1f} with {style.setup_text(base)}"
        f"{_doubt(efficient, base, efficient['cores'], base['cores']) or doubt}."
    )


def _doubt_of_many(group: pd.DataFrame) -> str:
    """Return why it is uncertain which setup is best for many runs side by side, or ""."""
    if (group["note"] == tidy.CONTENDED).any():
        return f" (uncertain: {DISTURBED})"
    if group["conditions"].str.startswith("alone").all():
        return " (uncertain: each was timed alone, and runs side by side slow each other down)"
    return ""


def _cost(scores: pd.DataFrame, fastest: pd.Series, facts: StudyFacts) -> str:
    """Return how the leading metric of the fastest setup differs from the baseline's."""
    metric = facts.metric
    columns = tidy.SPEED_SETTINGS
    rows = scores[(scores[columns] == fastest[columns].to_numpy()).all(axis=1)]
    rows = rows[rows["pairs"].notna()]
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
        limit = possible(uncertain["at_most"].max(), metric)
        return (
            f" Its {metric} does not differ significantly from that with {facts.baseline}; {limit}."
        )
    return (
        f" Whether its {metric} differs cannot be tested: pairs of runs have one difference only."
    )
