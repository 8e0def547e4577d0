"""Ranges of values in a model's entry, and candidates that are spread evenly over them.

    lr: {log: [0.0001, 0.1]}
    width: {range: [16, 256], step: 16}
    dropout: {range: [0.0, 0.5]}

The values of all ranges and lists of an entry are the coordinates of a scrambled Sobol sequence
(Sobol' 1967; Owen 1998, "Scrambling Sobol' and Niederreiter-Xing points"), which leaves smaller
gaps than independent draws do, for each key alone and for several together.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allcores_study.config.options import is_integer, is_number, number_hint

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("range", "log")
# Digits of a value that is not whole: enough to distinguish candidates, and short in labels.
DIGITS = 4
MOST_STEPS = 10**9  # in a range
MOST_POINTS = 2**14  # that are drawn to find different candidates
# The least width of a range, relative to its larger end: below it, rounding errors matter.
NARROWEST = 1e-9


@dataclass(frozen=True)
class Values:
    """The values of a list."""

    listed: list[Any]

    is_continuous = False

    @property
    def count(self) -> int:
        return len(self.listed)

    def at(self, position: float) -> Any:
        """Return the value at a position from 0 up to, not including, 1."""
        return self.listed[int(position * self.count)]

    def all(self) -> list[Any]:
        return self.listed


@dataclass(frozen=True)
class Range:
    """Values from `least` to `most`, both included; whole numbers if both are.

    Attributes:
        step: distance between values, from `least` on; None: 1 for whole numbers, else there are
            no steps.
        is_log: whether ratios, not differences, are equally likely.
    """

    least: int | float
    most: int | float
    step: int | float | None = None
    is_log: bool = False

    @property
    def is_continuous(self) -> bool:
        """Whether it has every value in between, rounded to DIGITS digits."""
        return self.step is None and not self._is_whole()

    @property
    def count(self) -> float:
        """How many values it has; inf if it is continuous."""
        if self.is_continuous:
            return math.inf
        # 0.3 / 0.1 is less than 3
        return 1 + math.floor((self.most - self.least) / (self.step or 1) + 1e-9)

    def at(self, position: float) -> int | float:
        """Return the value at a position from 0 up to, not including, 1."""
        if self.step is not None:
            return self._numbered(int(position * self.count))
        end = self.most + self._is_whole()
        if self.is_log:
            value = self.least * (end / self.least) ** position
        else:
            value = self.least + position * (end - self.least)
        return min(max(self._rounded(value), self.least), self.most)

    def all(self) -> list[int | float]:
        """Return the values, unless it is continuous."""
        return [self._numbered(number) for number in range(int(self.count))]

    def _rounded(self, value: float) -> int | float:
        if self._is_whole():
            return math.floor(value)
        return float(f"{value:.{DIGITS}g}") if self.is_log else round(value, self._decimals())

    def _numbered(self, number: int) -> int | float:
        """Return the value with a number from 0, unless it is continuous."""
        value = self.least + (self.step or 1) * number
        return value if is_integer(value) else float(f"{value:.12g}")  # 3 * 0.1 is not 0.3

    def _decimals(self) -> int:
        """Return enough decimals for a range to have at least 10 ** (DIGITS - 1) values."""
        return DIGITS - 1 - math.floor(math.log10(self.most - self.least))

    def _is_whole(self) -> bool:
        return is_integer(self.least) and is_integer(self.most)


def is_range(value: Any) -> bool:
    """Return whether a value of an entry is meant to be a range."""
    return isinstance(value, dict) and bool(value.keys() & set(KINDS))


def read(value: list[Any] | dict[str, Any]) -> Values | Range:
    """Return the Values or the Range that a list or dict of an entry stands for."""
    if isinstance(value, list):
        return Values(value)
    (kind,) = value.keys() & set(KINDS)
    return Range(*value[kind], step=value.get("step"), is_log=kind == "log")  # type: ignore[misc]


def problem(value: dict[str, Any]) -> str | None:
    """Return the mistake in a range, in words; None: there is none."""
    kinds = [kind for kind in KINDS if kind in value]
    if len(kinds) > 1 or set(value) - {kinds[0], *(["step"] if kinds == ["range"] else [])}:
        return f"found {value}; expected range: [from, to], perhaps with a step, or log: [from, to]"
    ends = value[kinds[0]]
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(is_number, ends)):
        texts = [end for end in ends if isinstance(end, str)] if isinstance(ends, list) else []
        hint = number_hint(texts[0]) if texts else ""
        return f"found {ends!r}; expected [from, to], two numbers{hint}"
    least, most = ends
    if max(abs(least), abs(most)) > sys.float_info.max:  # possible for a whole number
        return f"found {str(least)[:20]} to {str(most)[:20]}..., which no float can hold"
    if least >= most or (kinds == ["log"] and least <= 0):
        above = " and above 0" if kinds == ["log"] else ""
        return f"found {ends}; expected the first to be less than the second{above}"
    ratio = most / least if kinds == ["log"] else 1.0
    is_finite = math.isfinite(most - least) and math.isfinite(ratio)
    if not is_finite or most - least < NARROWEST * max(abs(least), abs(most)):
        return f"found {ends}, too far apart or too close together to draw numbers between them"
    step: Any = value.get("step")
    if "step" in value:
        width = most - least
        # 0.3 - 0.1 is less than 0.2
        if not is_number(step) or not 0 < step <= width * (1 + NARROWEST):
            return f"found step {step!r}; expected a number above 0 up to {width:g}"
        if step < width / MOST_STEPS:
            return f"found step {step!r}, which gives {least:g} to {most:g} too many values"
    return None


@dataclass(frozen=True)
class Swept:
    """A list or a range in a model's entry.

    Attributes:
        path: its keys in the entry: ("optimizer", "lr").
        found: the list, one value for each candidate; or the dict that is a range.
    """

    path: tuple[str, ...]
    found: list[Any] | dict[str, Any]

    @property
    def axis(self) -> Values | Range:
        """Its Values or its Range."""
        return read(self.found)

    @property
    def key(self) -> str:
        return self.path[-1]

    @property
    def name(self) -> str:
        """Its keys as one text: "optimizer.lr"."""
        return ".".join(self.path)


def draw(lists: Sequence[Swept], sample: int | dict[str, int] | None) -> list[tuple[Any, ...]]:
    """Return the values of each candidate: all combinations, or a sample of different ones.

    A sample is the first points of a scrambled Sobol sequence; there are fewer than asked for if
    there are no more different ones among MOST_POINTS. A smaller sample is the first part of a
    larger one.
    """
    if sample is None:
        return list(itertools.product(*(swept.axis.all() for swept in lists)))
    # Imported here: few configs need it, and it takes as long as the rest of reading a config.
    from scipy.stats import qmc

    settings = sample if isinstance(sample, dict) else {"count": sample}
    # Sorted by name, so that the order in which keys are written does not matter.
    order = sorted(range(len(lists)), key=lambda place: lists[place].path)
    axes = [swept.axis for swept in lists]
    exponent = max(settings["count"] - 1, 1).bit_length()
    drawn: dict[str, tuple[Any, ...]] = {}
    while len(drawn) < settings["count"] and 2**exponent <= MOST_POINTS:
        # Whole powers of 2: each sequence begins with the points of the smaller ones.
        points = qmc.Sobol(len(axes), rng=settings.get("seed", 0)).random_base2(exponent)
        for point in points.tolist():
            position = dict(zip(order, point, strict=True))
            values = tuple(axis.at(position[place]) for place, axis in enumerate(axes))
            drawn.setdefault(repr(values), values)
        exponent += 1
    return list(drawn.values())[: settings["count"]]


def is_seed(value: Any) -> bool:
    return is_integer(value) and value >= 0


def text_of(value: Any) -> str:
    """Return a value as a part of a label."""
    if isinstance(value, list):
        return "x".join(map(text_of, value))
    return re.sub(r"[^A-Za-z0-9_.-]", "_", str(value))


def short_names(names: Sequence[str]) -> list[str]:
    """Return the last key of each name, "lr" of "optimizer.lr"; the whole name if ambiguous."""
    short = [name.rpartition(".")[2] for name in names]
    return [
        key if short.count(key) == 1 else name.replace(".", "_")
        for key, name in zip(short, names, strict=True)
    ]
