"""Sentences made from the numbers of a study's tables. No torch."""

from dataclasses import dataclass

import pandas as pd

from allcores import comparison, style, tables

WAY = tables.SPEED_CELL
# Columns of runs.csv that make timings incomparable where they differ -> what they are.
MIXED = {
    "machine_host": "the machine",
    "machine_processor": "the processor",
    "machine_torch": "the version of torch",
    "exclusive": "alone on the machine",
    "pinned": "kept to cores of its own",
}


@dataclass(frozen=True)
class Facts:
    """What the config says of a study.

    Attributes:
        baseline: the strategy that speeds and accuracies refer to.
        target: the accuracy to be reached; None: none was asked for.
    """

    baseline: str
    target: float | None


def of_machine(runs):
    """On which machines the runs were made, and what was not the same for all of them."""
    hosts = list(dict.fromkeys(runs["machine_host"]))
    first = runs.iloc[0]
    where = f"On {hosts[0]}" if len(hosts) == 1 else f"On {len(hosts)} machines, {_listed(hosts)},"
    yield (
        f"{where} ({first['machine_cores_allowed']} cores, {first['machine_processor']}, "
        f"torch {first['machine_torch']}), from {_count(len(runs), 'run')}."
    )
    for column, what in MIXED.items():
        counts = runs[column].value_counts(sort=False)
        if len(counts) > 1:
            found = _listed([f"{value} ({number})" for value, number in counts.items()])
            yield f"Not the same for all runs, which timings show: {what}: {found}."
    resumed = (runs["sessions"].str.count(" ") > 0).sum()
    if resumed:
        yield f"{_count(resumed, 'run')} had been interrupted and resumed; their times are sums."


def of_missing(missing, runs):
    """What a study had to do without, and which runs came to nothing."""
    if len(missing):
        yield (
            f"INCOMPLETE: {_count(len(missing), 'run')} of {len(missing) + len(runs)} failed and "
            f"{'is' if len(missing) == 1 else 'are'} missing here, for instance "
            f"{missing['run'].iloc[0]}; its log says why."
        )
    diverged = runs[runs["diverged"].notna()]
    if len(diverged):
        ways = diverged.groupby(["model", "schedule", "strategy"], sort=False)["diverged"]
        listed = "; ".join(
            f"{model} ({schedule}) with {strategy}: {_count(len(where), 'run')}, the first in "
            f"{where.iloc[0]}"
            for (model, schedule, strategy), where in ways
        )
        yield f"DIVERGED, the loss being no finite number any more, and left out below: {listed}."


def of_bottom_line(found, facts):
    """How accurate, and for each model: the fastest way for one run, for all, and what it costs."""
    different, single = found.get("comparison_table"), []
    if different is not None:
        yield from _best_accuracies(found["runs"])
    for names, group in _by_model(found["speed_table"]):
        group = group[group["note"] != tables.OTHERWISE]
        base = _base(group, facts)
        if base is None:
            continue
        if len(group) == 1:
            single.append(f"{names} with {style.way(base)}{_mark(base)}")
            continue
        one = group.sort_values("images_per_second", ascending=False).iloc[0]
        many = group.loc[(group["images_per_second"] / group["cores"]).idxmax()]
        cost = "" if one.name == base.name or different is None else _cost(different, one, facts)
        yield f"{names}: {_for_one(one, base)}{cost} {_for_many(many, base)}"
    if single:
        yield (
            f"Trained in one way only, so that nothing can be said of which is fastest: "
            f"{_listed(single)}."
        )


def _best_accuracies(runs):
    """The accuracy of each model with its best schedule and way."""
    cells = runs[runs["accuracy"].notna()].groupby(tables.CELL, sort=False)
    rows = [
        dict(zip(tables.CELL, cell, strict=True))
        | {"accuracy": group["accuracy"].mean(), "reach": comparison.interval(group)}
        for cell, group in cells
    ]
    if not rows:
        return
    table = pd.DataFrame(rows).sort_values("accuracy", ascending=False)
    best = table.drop_duplicates(["dataset", "model", "train_size"])
    shown = tables.varying(best, ["dataset", "train_size"])
    listed = "; ".join(
        f"{style.title(['model', *shown], [row[c] for c in ['model', *shown]])} "
        f"{row['accuracy']:.1%}"
        + ("" if pd.isna(row["reach"]) else f" ± {100 * row['reach']:.1f}")
        + f" ({row['schedule']}, {style.way(row)})"
        for _, row in best.iterrows()
    )
    yield f"Held-out accuracy, each with its best schedule and way: {listed}."


def _for_one(one, base):
    if one.name == base.name:
        return f"for one run nothing was faster than {style.way(base)}{_mark(base)}."
    return (
        f"one run alone is fastest with {style.way(one)}{_mark(one)}, {one['speedup']:.2f} x "
        f"{style.way(base)}{_mark(base)}{_doubt(one, base, 1, 1)}."
    )


def _doubt(better, base, divisor, base_divisor):
    """Why it is not certain that one way is better than the baseline, by speeds per divisor."""
    if min(better["runs"], base["runs"]) == 1:
        return ", by too few runs to be sure"
    apart = better["slowest"] / divisor > base["fastest"] / base_divisor
    return "" if apart else ", which is not certain: the ranges overlap"


def _for_many(many, base):
    if many.name == base.name:
        return (
            f"For all runs together nothing beats {style.way(base)} on "
            f"{_count(base['cores'], 'core')} per run: run folds and seeds side by side."
        )
    return (
        f"For all runs together {style.way(many)} gets most out of each core: "
        f"{many['images_per_second'] / many['cores']:,.1f} images/s per core against "
        f"{base['images_per_second'] / base['cores']:,.1f} with {style.way(base)}"
        f"{_doubt(many, base, many['cores'], base['cores'])}."
    )


def _cost(different, one, facts):
    """What the fastest way of one run costs in accuracy."""
    same = (different[WAY] == one[WAY].to_numpy()).all(axis=1)
    rows = different[same]
    if rows.empty:
        return ""
    worse = rows[rows["finding"] == comparison.DIFFERS]
    if len(worse):
        row = worse.loc[worse["difference"].abs().idxmax()]
        verb = "gains" if row["difference"] > 0 else "costs"
        return f" It {verb} {100 * abs(row['difference']):.2f} points of accuracy."
    if (rows["finding"] == comparison.IDENTICAL).all():
        return f" Accuracy is the same as with {facts.baseline}, run by run."
    unclear = rows[rows["finding"] == comparison.NOT_FOUND]
    if len(unclear):
        reach = 100 * unclear["at_most"].max()
        return (
            f" Its accuracy cannot be told apart from that with {facts.baseline}: a difference of "
            f"up to {reach:.1f} points is possible."
        )
    return " Nothing can be said of what it costs in accuracy."


def _base(group, facts):
    """The baseline's row with the fewest cores; None: it is missing."""
    base = group[group["strategy"] == facts.baseline].sort_values("cores", kind="stable")
    return None if base.empty else base.iloc[0]


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
        base = _base(group, facts)
        if base is None or len(group) == 1:
            single += [
                f"{names}, {style.way(row)}: {row['images_per_second']:,.1f} images/s{_mark(row)}"
                for _, row in group.iterrows()
            ]
            continue
        listed = "; ".join(
            f"{style.way(row)} {_speedup(row)}{_mark(row)}"
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
    best = group.iloc[0]
    rivals = group[(group["strategy"] == facts.baseline) & (group["cores"] <= best["cores"])]
    if best["strategy"] == facts.baseline or rivals.empty or pd.isna(best["over_best"]):
        return
    rival = rivals.iloc[0]
    unsure = "" if best["slowest"] > rival["fastest"] else ", which overlap"
    if min(best["runs"], rival["runs"]) == 1:
        unsure = ", too few runs"
    yield (
        f"{names}: fastest is {style.way(best)}{_mark(best)}, {best['over_best']:.2f} x the "
        f"best of {facts.baseline} on at most as many cores, {style.way(rival)}: {_range(best)} "
        f"against {_range(rival)}{unsure and f'{unsure}: they cannot be told apart'}."
    )


def _range(row):
    return (
        f"{row['slowest']:,.1f} to {row['fastest']:,.1f} images/s in {_count(row['runs'], 'run')}"
    )


def of_elapsed(table, facts):
    """Times measured, and beside them those that others have published."""
    for model, group in table.groupby("model", sort=False):
        published = group["note"] == tables.PUBLISHED
        group = group.assign(note=group["note"].mask(published))
        measured, others = (
            "; ".join(
                f"{row['way']}{_on_cores(row['cores'])}: {row['per_1000']:,.1f} s{_mark(row)}"
                for _, row in rows.iterrows()
            )
            for rows in (group[~published], group[published])
        )
        yield f"{model}, training time per 1,000 images: {measured}."
        if others:
            yield f"{model}, published elsewhere, per 1,000 images: {others}."


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
            f"{what} cannot be told apart from that {reference} by {pairs:.0f} pairs of runs, in "
            f"{_count(len(same), 'comparison')}: differences of up to {reach:.1f} points are "
            f"possible (95 % intervals; {'least ' if len(same) > 1 else ''}corrected "
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


def _speedup(row):
    return "" if pd.isna(row["speedup"]) else f"{row['speedup']:.2f} x"


def _listed(values):
    return ", ".join(map(str, values))


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
