"""Numbers and names in words, for sentences. No torch."""

from dataclasses import dataclass

import pandas as pd

from allcores.analysis import style, tidy


@dataclass(frozen=True)
class Facts:
    """What the config says of a study.

    Attributes:
        baseline: the strategy that speeds and accuracies refer to.
        target: the accuracy to be reached; None: none was asked for.
    """

    baseline: str
    target: float | None


def p_value(value):
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def speedup_of(row):
    return "" if pd.isna(row["speedup"]) else f"{row['speedup']:.2f} x"


def comma_separated(values):
    return ", ".join(map(str, values))


def count(number, noun):
    return f"{number} {noun}{'' if number == 1 else 's'}"


def by_model(table):
    """(what is trained, rows) for each model, dataset, schedule and size that the table has."""
    columns = [c for c in ("model", "dataset", "schedule", "train_size") if c in table]
    shown = ["model", *tidy.varying(table, [c for c in columns if c != "model"])]
    for names, group in table.groupby(shown, sort=False):
        yield style.title(shown, names), group


def title_of(row, rows):
    shown = ["model", *tidy.varying(rows, ["dataset", "schedule", "train_size", "strategy"])]
    return style.title(shown, [row[column] for column in shown])


def on_cores(cores):
    return "" if pd.isna(cores) else f" on {count(int(cores), 'core')}"


def mark(row):
    return "" if pd.isna(row["note"]) else f" ({row['note']})"


def signed(value):
    return f"{'+' if value >= 0 else '-'} {abs(value):.3f}"


def base_of(group, facts):
    """The baseline's row with the fewest cores; None: it is missing."""
    base = group[group["strategy"] == facts.baseline].sort_values("cores", kind="stable")
    return None if base.empty else base.iloc[0]
