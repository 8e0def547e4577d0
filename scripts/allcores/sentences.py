"""Sentences made from the numbers of a study's tables. No torch."""

from dataclasses import dataclass

import pandas as pd

from allcores import comparison, style, tables


@dataclass(frozen=True)
class Facts:
    """What the config says of a study.

    Attributes:
        baseline: the strategy that speeds and accuracies refer to.
        exclusive: whether each run had the machine to itself.
        target: the accuracy to be reached; None: none was asked for.
    """

    baseline: str
    exclusive: bool
    target: float | None


def of_machine(runs):
    first = runs.iloc[0]
    machines = runs["machine_host"].nunique()
    where = "On this machine" if machines == 1 else f"On {machines} machines like this one"
    return (
        f"{where} ({first['machine_cores_allowed']} cores, {first['machine_processor']}, "
        f"torch {first['machine_torch']}), from {len(runs)} runs:"
    )


def of_packing(table, facts):
    """Packed against one after the other."""
    whole, parts = table[table["over_bound"].notna()].iloc[0], table[table["over_bound"].isna()]
    each = ", ".join(f"{_name(row, parts)} {row['speedup']:.2f} x" for _, row in parts.iterrows())
    yield (
        f"Packing {whole['runs']:.0f} runs onto the cores is {whole['speedup']:.2f} x as fast as "
        f"running them one after the other: {whole['packed_seconds']:,.0f} s against "
        f"{whole['one_by_one_seconds']:,.0f} s ({each})."
    )
    yield (
        f"The packed runs took {whole['over_bound']:.2f} x their core-seconds divided by the "
        "cores, start-up and evaluation included."
    )
    for model, group in parts.groupby("model", sort=False):
        yield from _differences(
            group,
            f"{model}: accuracy, packed,",
            "of the same runs one after the other",
            lambda row: f"Accuracy of {_name(row, parts)}, packed,",
        )


def of_speed(table, facts):
    """The fastest way for each model, and the others after it."""
    single = []
    for names, group in _by_model(table):
        base = group[group["strategy"] == facts.baseline].sort_values("cores").iloc[0]
        others = group.drop(index=base.name).sort_values("speedup", ascending=False)
        if others.empty:
            single.append(f"{names}, {style.way(base)}: {base['images_per_second']:,.4g} images/s")
            continue
        listed = "; ".join(
            f"{style.way(row)} {row['speedup']:.2f} x{_mark(row)}" for _, row in others.iterrows()
        )
        yield (
            f"{names}, images per second relative to {style.way(base)} "
            f"({base['images_per_second']:,.4g}): {listed}."
        )
        yield from _fastest(names, group, others, facts)
    if single:
        yield (
            f"{'; '.join(single)}. With one way of using the cores there is nothing to compare "
            "within this study."
        )
    if not facts.exclusive:
        yield (
            "Other runs were at work on the other cores meanwhile: these are speeds of a packed "
            "machine."
        )


def _fastest(names, group, others, facts):
    """Whether anything beats the best that the baseline reaches on as many cores."""
    best = others.iloc[0]
    if best["strategy"] == facts.baseline:
        return
    rival = group[(group["strategy"] == facts.baseline) & (group["cores"] <= best["cores"])]
    rival = rival.sort_values("images_per_second").iloc[-1]
    if rival["cores"] == 1 and best["cores"] > 1:
        return
    if best["slowest"] > rival["fastest"]:
        how = f"is {best['over_best']:.2f} x as fast as"
    else:
        how = f"({best['over_best']:.2f} x) cannot be told apart, by the range of the runs, from"
    yield (
        f"{names}: {style.way(best)}, the fastest, {how} the best of {facts.baseline} on as many "
        f"cores, {style.way(rival)}."
    )


def of_elapsed(table, facts):
    published = table[table["note"] == "published elsewhere"]
    for model, group in published.groupby("model", sort=False):
        times = "; ".join(
            f"{row['way']}{_on_cores(row['cores'])}: {row['seconds']:g} s"
            for _, row in group.iterrows()
        )
        yield (
            f"{model}: for comparison, published elsewhere and not measured here, with other "
            f"images and epochs than a miniature has: {times}."
        )


def of_target(table, facts):
    """Epochs and seconds to the target accuracy."""
    for names, group in _by_model(table):
        hit = group[group["reached"] > 0].sort_values("seconds")
        listed = "; ".join(
            f"{style.way(row)} {row['epochs']:g} epochs, {row['seconds']:.2f} s"
            + (
                ""
                if row["reached"] == row["runs"]
                else f" ({row['reached']} of {row['runs']} runs)"
            )
            for _, row in hit.iterrows()
        )
        if listed:
            yield f"{names} reaches {facts.target:.1%} held-out accuracy with {listed}."
        missed = group[group["reached"] == 0]
        if len(missed):
            ways = "; ".join(style.way(row) for _, row in missed.iterrows())
            yield f"{names} never reached {facts.target:.1%} with {ways}."


def of_sizes(table, facts):
    for model, group in table.groupby("model", sort=False):
        listed = "; ".join(
            f"{style.way(row)} {row['seconds_per_1000']:.3f} s per 1,000 samples "
            f"{_signed(row['intercept_seconds'])} s (R² = {row['r_squared']:.3f})"
            for _, row in group.iterrows()
        )
        yield f"{model}, time of an epoch: {listed}."


def of_comparison(table, facts):
    if table.empty:
        yield "Accuracy was measured in one way only: there is nothing to compare in this study."
    for names, group in _by_model(table):
        yield from _differences(
            group,
            f"{names}: accuracy",
            f"of {facts.baseline}",
            lambda row, names=names: f"{names}: accuracy with {style.way(row)}",
        )


def of_staleness(table, facts):
    for (strategy, workers), group in table.groupby(["strategy", "workers"], sort=False):
        updates = group.groupby("staleness")["updates"].sum()
        mean = (updates.index * updates).sum() / updates.sum()
        fresh = updates.get(0, 0) / updates.sum()
        yield (
            f"{strategy} with {_count(workers, 'worker')}: {fresh:.0%} of the "
            f"updates were made from weights that nobody had changed meanwhile; staleness was "
            f"{mean:.2f} updates on average and {updates.index.max()} at most."
        )


def _differences(rows, what, reference, subject):
    """Whether accuracy differs from a reference's, for rows of a comparison.

    Args:
        what: whose accuracies are compared, all together.
        reference: with whose.
        subject: a function from a row to what is said of it alone.
    """
    differing = rows[rows["finding"] == comparison.DIFFERS]
    for _, row in differing.iterrows():
        direction = "above" if row["difference"] > 0 else "below"
        yield (
            f"{subject(row)} is {100 * abs(row['difference']):.2f} points {direction} that "
            f"{reference} (95 % interval {100 * row['low']:+.2f} to {100 * row['high']:+.2f}, "
            f"{_p(row['p_corrected'])})."
        )
    same = rows[rows["finding"] == comparison.NOT_FOUND]
    if len(same):
        pairs, reach = same["pairs"].min(), 100 * same["at_most"].max()
        yield (
            f"{what} {'otherwise ' if len(differing) else ''}does not differ from that "
            f"{reference} as far as {_count(len(same), 'comparison')} of {pairs:.0f} pairs can "
            f"tell (by at most {reach:.1f} points; {'smallest ' if len(same) > 1 else ''}"
            f"{_p(same['p_corrected'].min())})."
        )
    unsaid = rows[rows["finding"] == comparison.UNKNOWN]
    if len(unsaid):
        yield (
            f"{what}: from one pair of runs each, nothing can be said of "
            f"{_count(len(unsaid), 'comparison')} with that {reference}."
        )


def _p(value):
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def _count(number, noun):
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _by_model(table):
    """(what is trained, rows) for each model, dataset, schedule and size that the table has."""
    columns = [c for c in ("model", "dataset", "schedule", "train_size") if c in table]
    shown = ["model", *tables.varying(table, [c for c in columns if c != "model"])]
    for names, group in table.groupby(shown, sort=False):
        yield style.title(shown, names), group


def _name(row, rows):
    shown = ["model", *tables.varying(rows, ["dataset", "schedule", "train_size", "strategy"])]
    return style.title(shown, [row[column] for column in shown])


def _on_cores(cores):
    return "" if pd.isna(cores) else f" on {cores:.0f} cores"


def _mark(row):
    return "" if pd.isna(row["note"]) else f" ({row['note']})"


def _signed(value):
    return f"{'+' if value >= 0 else '-'} {abs(value):.3f}"
