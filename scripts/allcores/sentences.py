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
    hosts = runs["machine_host"].nunique()
    where = f"On {first['machine_host']}" if hosts == 1 else f"On {hosts} machines, one of them"
    return (
        f"{where} ({first['machine_cores_allowed']} cores, {first['machine_processor']}, "
        f"torch {first['machine_torch']}), from {_count(len(runs), 'run')}:"
    )


def of_packing(table, facts):
    """Packed against one after the other."""
    whole, parts = table[table["over_bound"].notna()].iloc[0], table[table["over_bound"].isna()]
    each = "; ".join(f"{_name(row, parts)}: {row['speedup']:.2f} x" for _, row in parts.iterrows())
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
            lambda row: f"{_name(row, parts)}: accuracy when packed",
        )


def of_speed(table, facts):
    """Every way for each model, the fastest first."""
    single = []
    for names, group in _by_model(table):
        group = group.sort_values("images_per_second", ascending=False)
        base = group[group["strategy"] == facts.baseline].sort_values("cores", kind="stable")
        base = base.iloc[0]
        if len(group) == 1:
            single.append(f"{names}, {style.way(base)}: {base['images_per_second']:,.1f} images/s")
            continue
        listed = "; ".join(
            f"{style.way(row)} {row['speedup']:.2f} x{_mark(row)}"
            for _, row in group.drop(index=base.name).iterrows()
        )
        yield (
            f"{names}, images per second relative to {style.way(base)}{_mark(base)} "
            f"({base['images_per_second']:,.1f}): {listed}."
        )
        yield from _fastest(names, group, facts)
    if single:
        yield (
            f"{'; '.join(single)}. With one way of using the cores there is nothing to compare "
            "within this study."
        )
    if not facts.exclusive:
        yield "Runs were packed: others were at work on the other cores, which can slow a run down."


def _fastest(names, group, facts):
    """The fastest way against the best that the baseline reaches on as many cores.

    Args:
        group: its ways, the fastest first.
    """
    best = group.iloc[0]
    rivals = group[(group["strategy"] == facts.baseline) & (group["cores"] <= best["cores"])]
    if best["strategy"] == facts.baseline or rivals.empty:
        return
    rival = rivals.iloc[0]
    apart = best["slowest"] > rival["fastest"]
    yield (
        f"{names}: fastest is {style.way(best)}{_mark(best)}, {best['over_best']:.2f} x the "
        f"best of {facts.baseline} on at most as many cores, {style.way(rival)}: {_range(best)} "
        f"against {_range(rival)}{'' if apart else ', which overlap: they cannot be told apart'}."
    )


def _range(row):
    return (
        f"{row['slowest']:,.1f} to {row['fastest']:,.1f} images/s in {_count(row['runs'], 'run')}"
    )


def of_elapsed(table, facts):
    """Times measured, and beside them those that others have published."""
    for model, group in table.groupby("model", sort=False):
        published = group["note"] == "published elsewhere"
        measured, others = (
            "; ".join(
                f"{row['way']}{_on_cores(row['cores'])}: {row['seconds']:,.1f} s"
                for _, row in rows.iterrows()
            )
            for rows in (group[~published], group[published])
        )
        yield f"{model}, training time of a whole run: {measured}."
        if others:
            yield f"{model}, published elsewhere for a run of its own size: {others}."


def of_target(table, facts):
    """Epochs and seconds to the target accuracy."""
    for names, group in _by_model(table):
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
    for names, group in _by_model(table):
        listed = "; ".join(
            f"{style.way(row)} {row['seconds_per_1000']:.3f} s per 1,000 samples "
            f"{_signed(row['intercept_seconds'])} s (R² = {row['r_squared']:.3f})"
            for _, row in group.iterrows()
        )
        yield f"{names}, time of an epoch: {listed}."


def of_comparison(table, facts):
    if table.empty:
        yield (
            "All was trained with one way of using the cores: there is no accuracy to compare "
            "within this study."
        )
    for names, group in _by_model(table):
        yield from _differences(
            group,
            f"{names}: accuracy",
            f"with {facts.baseline}",
            lambda row, names=names: f"{names}: accuracy with {style.way(row)}",
        )


def of_staleness(table, facts):
    for names, group in _by_model(table):
        for (strategy, workers), rows in group.groupby(["strategy", "workers"], sort=False):
            updates = rows.groupby("staleness")["updates"].sum()
            mean = (updates.index * updates).sum() / updates.sum()
            yield (
                f"{names}, {strategy} with {_count(workers, 'worker')}: "
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
            f"corrected {_p(row['p_corrected'])})."
        )
    same = rows[rows["finding"] == comparison.NOT_FOUND]
    if len(same):
        pairs, reach = same["pairs"].min(), 100 * same["at_most"].max()
        yield (
            f"{what} does not differ from that {reference} as far as {pairs:.0f} pairs of runs can "
            f"tell, in {_count(len(same), 'comparison')} (95 % intervals reach at most "
            f"{reach:.1f} points; {'least ' if len(same) > 1 else ''}corrected "
            f"{_p(same['p_corrected'].min())})."
        )
    equal = rows[rows["finding"] == comparison.IDENTICAL]
    if len(equal):
        yield (
            f"{what} is identical to that {reference} in every one of {equal['pairs'].sum():.0f} "
            f"pairs of runs, in {_count(len(equal), 'comparison')}."
        )
    unsaid = rows[rows["finding"] == comparison.UNKNOWN]
    if len(unsaid):
        yield (
            f"{what}: without spread over pairs of runs, nothing can be said of "
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
    return "" if pd.isna(cores) else f" on {_count(int(cores), 'core')}"


def _mark(row):
    return "" if pd.isna(row["note"]) else f" ({row['note']})"


def _signed(value):
    return f"{'+' if value >= 0 else '-'} {abs(value):.3f}"
