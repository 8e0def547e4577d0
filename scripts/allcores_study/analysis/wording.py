"""Format names and numbers for sentences and tables. No torch."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from allcores_study.analysis import style, tidy

if TYPE_CHECKING:
    from allcores_study.analysis.metrics import Metric
    from allcores_study.analysis.products import StudyFacts

# A difference or interval that covers more of the range of scores than this is uninformative.
WIDEST = 0.5


@dataclass(frozen=True)
class Number:
    """The format of the numbers of a column: {pattern} of value times factor, and a unit.

    With z in a pattern, a value that is rounded to zero has no sign.
    """

    pattern: str
    unit: str = ""
    factor: float = 1.0

    def write(self, value: float) -> str:
        return self.pattern.format(self.factor * value)


def percent(digits: int, sign: str = "") -> Number:
    return Number(f"{{:{sign}z.{digits}f}}", "points" if sign else "%", 100.0)


def number(metric: Metric, sign: str = "") -> Number:
    """Return the format of values of a metric or, with a sign, of differences of them.

    Args:
        sign: "+" for a sign on all numbers, "-" for one on negative numbers only.
    """
    if not metric.unit:
        return Number(f"{{:{sign}z.4g}}")
    return Number(f"{{:{sign}z.2f}}", "points" if sign else "%", metric.scale)


def seconds(digits: int) -> Number:
    return Number(f"{{:,.{digits}f}}", "s")


WHOLE = Number("{:,.0f}")
TIMES = Number("{:.2f}", "×")  # noqa: RUF001 - a multiplication sign
RATE = Number("{:,.1f}", "samples/s")
DIFFERENCE = functools.partial(number, sign="+")
# Prefixes that do not change a format: "packed_seconds" is formatted like "seconds".
SIDES = re.compile("^(one_by_one|packed|predicted|measured|training|core)_")
# Format of columns that NUMBERS does not name.
OTHERS = Number("{:.4g}")
# Column -> its format in all tables, or a function of the leading metric that returns it.
NUMBERS: dict[str, Number | Callable[[Metric], Number]] = {
    **dict.fromkeys(("nodes", "workers", "cores", "runs", "pairs", "samples"), WHOLE),
    **dict.fromkeys(("folds", "chosen", "diverged", "reached"), WHOLE),
    **dict.fromkeys(("score", "standard_deviation", "low_95", "high_95"), number),
    **dict.fromkeys(("difference", "low", "high"), DIFFERENCE),
    "at_most": functools.partial(number, sign="-"),
    **dict.fromkeys(("p", "p_corrected"), Number("{:.3g}")),
    **dict.fromkeys(("samples_per_second", "slowest", "fastest"), RATE),
    **dict.fromkeys(("speedup", "over_best", "over_bound"), TIMES),
    **dict.fromkeys(("efficiency", "utilisation"), percent(0)),
    **dict.fromkeys(("seconds", "training", "per_1000"), seconds(2)),
    "epoch_seconds": seconds(3),
    "core_hours": Number("{:,.3g}", "h"),
    "epochs": Number("{:.3g}"),
    "memory": Number("{:,.0f}", "MB"),
    "sent_mb": Number("{:,.2f}", "MB"),
    "error": Number("{:+.0f}", "%", 100.0),
}


def formats(
    table: pd.DataFrame,
    metrics: Sequence[Metric],
    own: dict[str, Number | Callable[[Metric], Number]] | None = None,
    others: Number | Callable[[Metric], Number] = OTHERS,
) -> dict[str, Number]:
    """Return column -> Number for the columns of a table that hold numbers; others are texts.

    Args:
        metrics: of the study, the leading one first.
        own: formats of this table that differ from NUMBERS.
        others: format of columns that neither names.
    """
    known = NUMBERS | {metric.name: number(metric) for metric in metrics} | (own or {})
    found = {}
    for name in table.columns.difference([*tidy.LABELS, "threads"], sort=False):
        kind = known.get(name, known.get(SIDES.sub("", name)))
        if not kind and _is_of_numbers(table[name]):
            kind = others
        if kind:
            found[name] = kind(metrics[0]) if callable(kind) else kind
    return found


def _is_of_numbers(values: pd.Series) -> bool:
    """Return whether a column has numbers; an empty one counts as text."""
    return is_numeric_dtype(values) and not is_bool_dtype(values) and values.notna().any()


def comma_separated(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def in_a_row(values: Sequence[str]) -> str:
    """Join texts: "a", "a and b", or "a, b and c"."""
    *others, last = values
    return f"{comma_separated(others)} and {last}" if others else last


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def by_model(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (what is trained, its rows) for each model, dataset, schedule and size in a table."""
    columns = [c for c in ("model", "dataset", "schedule", "train_size") if c in table]
    shown = ["model", *tidy.varying(table, [c for c in columns if c != "model"])]
    for names, group in table.groupby(shown, sort=False):
        yield style.title(shown, names), group


def mark(row: pd.Series) -> str:
    return "" if pd.isna(row["note"]) else f" ({row['note']})"


def base_of(group: pd.DataFrame, facts: StudyFacts) -> pd.Series | None:
    """Return the row of the baseline with the fewest cores; None: it is missing."""
    base = group[group["strategy"] == facts.baseline].sort_values("cores", kind="stable")
    return None if base.empty else base.iloc[0]


def possible(limit: float, metric: Metric) -> str:
    """Return how large a difference may be, in words; very large limits are not named."""
    least, most = (0, 1) if metric.unit else metric.bounds
    if None not in (least, most) and limit > WIDEST * (most - least):  # type: ignore[operator]
        return "the runs are too few to say how much it may differ"
    return f"the 95 % interval reaches {metric.points(limit, 1)}"


def comparable(group: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a model that were timed under the same conditions."""
    return group[group["note"] != tidy.OTHER_CONDITIONS]


def left_out(group: pd.DataFrame, fastest: pd.Series) -> str:
    """Return a remark on rows that were faster than the fastest of comparable(), or ""."""
    faster = group[group["samples_per_second"] > fastest["samples_per_second"]]
    others = faster[faster["note"] == tidy.OTHER_CONDITIONS]
    if others.empty:
        return ""
    names = comma_separated(style.setup_text(row) for _, row in others.iterrows())
    return f" (timed under other conditions and left out: {names})"
