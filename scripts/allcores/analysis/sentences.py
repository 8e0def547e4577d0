"""Sentences made from the numbers of a study's tables. No torch."""

import pandas as pd

from allcores.analysis import comparison, style, tidy
from allcores.analysis.wording import (
    base_of,
    by_model,
    comma_separated,
    count,
    mark,
    on_cores,
    p_value,
    signed,
    speedup_of,
    title_of,
)

# Columns of runs.csv that make timings incomparable where they differ -> what they are.
MIXED = {
    "machine_host": "the machine",
    "machine_processor": "the processor",
    "machine_torch": "the version of torch",
    "exclusive": "alone on the machine",
    "pinned": "kept to cores of its own",
}


def of_machine(runs):
    """On which machines the runs were made, and what was not the same for all of them."""
    hosts = list(dict.fromkeys(runs["machine_host"]))
    first = runs.iloc[0]
    where = (
        f"On {hosts[0]}"
        if len(hosts) == 1
        else f"On {len(hosts)} machines, {comma_separated(hosts)},"
    )
    yield (
        f"{where} ({first['machine_cores_allowed']} cores, {first['machine_processor']}, "
        f"torch {first['machine_torch']}), from {count(len(runs), 'run')}."
    )
    for column, what in MIXED.items():
        counts = runs[column].value_counts(sort=False)
        if len(counts) > 1:
            found = comma_separated([f"{value} ({number})" for value, number in counts.items()])
            yield f"Not the same for all runs, which timings show: {what}: {found}."
    resumed = (runs["sessions"].str.count(" ") > 0).sum()
    if resumed:
        yield f"{count(resumed, 'run')} had been interrupted and resumed; their times are sums."


def of_missing(missing, runs):
    """What a study had to do without, and which runs came to nothing."""
    if len(missing):
        yield (
            f"INCOMPLETE: {count(len(missing), 'run')} of {len(missing) + len(runs)} failed and "
            f"{'is' if len(missing) == 1 else 'are'} missing here, for instance "
            f"{missing['run'].iloc[0]}; its log says why."
        )
    diverged = runs[runs["diverged"].notna()]
    if len(diverged):
        ways = diverged.groupby(["model", "schedule", "strategy"], sort=False)["diverged"]
        listed = "; ".join(
            f"{model} ({schedule}) with {strategy}: {count(len(where), 'run')}, the first in "
            f"{where.iloc[0]}"
            for (model, schedule, strategy), where in ways
        )
        yield f"DIVERGED, the loss being no finite number any more, and left out below: {listed}."


def of_packing(table, facts):
    """Packed against one after the other."""
    whole, parts = table[table["over_bound"].notna()].iloc[0], table[table["over_bound"].isna()]
    each = "; ".join(
        f"{title_of(row, parts)}: {row['speedup']:.2f} x" for _, row in parts.iterrows()
    )
    yield (
        f"Packing {whole['runs']:.0f} runs onto the cores is {whole['speedup']:.2f} x as fast as "
        f"running them one after the other with {whole['one_by_one']}: "
        f"{whole['packed_seconds']:,.0f} s against {whole['one_by_one_seconds']:,.0f} s ({each})."
    )
    yield (
        f"The packed runs took {whole['over_bound']:.2f} x the least possible, their core-seconds "
        "divided by the cores; start-up and evaluation count."
    )
    for model, group in parts.groupby("model", sort=False):
        yield from _differences(
            group,
            f"{model}: accuracy when packed",
            "one after the other",
            lambda row: f"{title_of(row, parts)}: accuracy when packed",
        )


def of_speed(table, facts):
    """Every way for each model, the fastest first."""
    single = []
    for names, group in by_model(table):
        group = group.sort_values("images_per_second", ascending=False)
        base = base_of(group, facts)
        if base is None:
            ways = "; ".join(
                f"{style.way(row)}: {row['images_per_second']:,.1f} images/s{mark(row)}"
                for _, row in group.iterrows()
            )
            yield f"{names}, without {facts.baseline} to judge them by: {ways}."
            continue
        if len(group) == 1:
            single += [
                f"{names}, {style.way(row)}: {row['images_per_second']:,.1f} images/s{mark(row)}"
                for _, row in group.iterrows()
            ]
            continue
        listed = "; ".join(
            f"{style.way(row)} {speedup_of(row)}{mark(row)}"
            for _, row in group.drop(index=base.name).iterrows()
        )
        yield (
            f"{names}, images per second relative to {style.way(base)}{mark(base)} "
            f"({base['images_per_second']:,.1f}): {listed}."
        )
        yield from _fastest(names, group, facts)
    if single:
        yield (
            f"{'; '.join(single)}. With one way of using the cores there is nothing to compare "
            "within this study."
        )
    if (table["note"] == "contended").any():
        yield (
            "Contended: others were at work for more than a tenth of the time of a run's cores, or "
            "its threads waited that long for a core; its speed is too low."
        )
    if any("packed" in conditions for conditions in table["conditions"]):
        yield (
            "Runs were packed: one on few cores had neighbours at work on the others, which slow "
            "it down; one on all cores had none. That leans towards the ways with many cores; "
            "`exclusive: true` times each run alone."
        )


def _fastest(names, group, facts):
    """The fastest way against the best that the baseline reaches on as many cores.

    Args:
        group: its ways, the fastest first.
    """
    best = group[group["note"] != tidy.OTHERWISE].iloc[0]
    rivals = group[(group["strategy"] == facts.baseline) & (group["cores"] <= best["cores"])]
    rivals = rivals[rivals["conditions"] == best["conditions"]]
    if best["strategy"] == facts.baseline or rivals.empty or pd.isna(best["over_best"]):
        return
    rival = rivals.iloc[0]
    unsure = "" if best["slowest"] > rival["fastest"] else ", which overlap"
    if min(best["runs"], rival["runs"]) == 1:
        unsure = ", too few runs"
    yield (
        f"{names}: fastest is {style.way(best)}{mark(best)}, {best['over_best']:.2f} x the "
        f"best of {facts.baseline} on at most as many cores, {style.way(rival)}: {_range(best)} "
        f"against {_range(rival)}{unsure and f'{unsure}: they cannot be told apart'}."
    )


def _range(row):
    return f"{row['slowest']:,.1f} to {row['fastest']:,.1f} images/s in {count(row['runs'], 'run')}"


def of_elapsed(table, facts):
    """Times measured, and beside them those that others have published."""
    for model, group in table.groupby("model", sort=False):
        published = group["note"] == tidy.PUBLISHED
        group = group.assign(note=group["note"].mask(published))
        measured, others = (
            "; ".join(
                f"{row['way']}{on_cores(row['cores'])}: {row['per_1000']:,.1f} s{mark(row)}"
                for _, row in rows.iterrows()
            )
            for rows in (group[~published], group[published])
        )
        yield f"{model}, training time per 1,000 images: {measured}."
        if others:
            yield f"{model}, published elsewhere, per 1,000 images: {others}."


def of_target(table, facts):
    """Epochs and seconds to the target accuracy."""
    for names, group in by_model(table):
        hit = group[group["reached"] > 0].sort_values("seconds")
        listed = "; ".join(
            f"{style.way(row)} after {row['epochs']:g} epochs, {row['seconds']:.2f} s"
            + (
                ""
                if row["reached"] == row["runs"]
                else f" ({row['reached']} of {row['runs']} runs)"
            )
            for _, row in hit.iterrows()
        )
        if listed:
            yield f"{names} reaches {facts.target:.1%} held-out accuracy: {listed}."
        missed = group[group["reached"] == 0]
        if len(missed):
            ways = "; ".join(style.way(row) for _, row in missed.iterrows())
            yield f"{names} never reached {facts.target:.1%} with {ways}."


def of_sizes(table, facts):
    for names, group in by_model(table):
        listed = "; ".join(
            f"{style.way(row)} {row['seconds_per_1000']:.3f} s per 1,000 samples "
            f"{signed(row['intercept_seconds'])} s (R² = {row['r_squared']:.3f})"
            for _, row in group.iterrows()
        )
        yield f"{names}, time of an epoch: {listed}."


def of_comparison(table, facts):
    if table.empty:
        yield (
            "There are no runs with two ways of using the cores whose accuracies could be compared "
            "within this study."
        )
    for names, group in by_model(table):
        yield from _differences(
            group,
            f"{names}: accuracy",
            f"with {facts.baseline}",
            lambda row, names=names: f"{names}: accuracy with {style.way(row)}",
        )


def of_staleness(table, facts):
    for names, group in by_model(table):
        for (strategy, workers), rows in group.groupby(["strategy", "workers"], sort=False):
            updates = rows.groupby("staleness")["updates"].sum()
            mean = (updates.index * updates).sum() / updates.sum()
            yield (
                f"{names}, {strategy} with {count(workers, 'worker')}: "
                f"{updates.get(0, 0) / updates.sum():.0%} of the updates were made from weights "
                f"that nobody had changed meanwhile; staleness was {mean:.2f} updates on average "
                f"and {updates.index.max()} at most."
            )


def _differences(rows, what, reference, subject):
    """Whether accuracy differs from a reference's, for rows of a comparison.

    Args:
        what: whose accuracies are compared, all together.
        reference: with whose.
        subject: a function from a row to what is said of it alone.
    """
    for _, row in rows[rows["finding"] == comparison.DIFFERS].iterrows():
        direction = "above" if row["difference"] > 0 else "below"
        yield (
            f"{subject(row)} is {100 * abs(row['difference']):.2f} points {direction} that "
            f"{reference} (95 % interval {100 * row['low']:+.2f} to {100 * row['high']:+.2f}, "
            f"corrected {p_value(row['p_corrected'])})."
        )
    same = rows[rows["finding"] == comparison.NOT_FOUND]
    if len(same):
        pairs, reach = same["pairs"].min(), 100 * same["at_most"].max()
        yield (
            f"{what} cannot be told apart from that {reference} by {pairs:.0f} pairs of runs, in "
            f"{count(len(same), 'comparison')}: differences of up to {reach:.1f} points are "
            f"possible (95 % intervals; {'least ' if len(same) > 1 else ''}corrected "
            f"{p_value(same['p_corrected'].min())})."
        )
    equal = rows[rows["finding"] == comparison.IDENTICAL]
    if len(equal):
        yield (
            f"{what} is identical to that {reference} in every one of {equal['pairs'].sum():.0f} "
            f"pairs of runs, in {count(len(equal), 'comparison')}."
        )
    unsaid = rows[rows["finding"] == comparison.UNKNOWN]
    if len(unsaid):
        yield (
            f"{what}: without spread over pairs of runs, nothing can be said of "
            f"{count(len(unsaid), 'comparison')} with that {reference}."
        )
