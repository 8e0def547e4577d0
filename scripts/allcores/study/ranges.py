"""Ranges of values in a model's entry, and candidates that are spread evenly over them.

    lr: {log: [0.0001, 0.1]}
    width: {range: [16, 256], step: 16}
    dropout: {range: [0.0, 0.5]}

The values of all ranges and lists of an entry are the coordinates of a scrambled Sobol sequence
(Sobol' 1967; Owen 1998, "Scrambling Sobol' and Niederreiter-Xing points"), which leaves smaller
gaps than independent draws do, for each key alone and for several together.
"""

import math
from dataclasses import dataclass

from allcores.study.component import is_integer, is_number, number_hint

KINDS = ("range", "log")
# Digits of a value that is no whole number: enough to tell candidates apart, and short in labels.
DIGITS = 4


@dataclass(frozen=True)
class Values:
    """The values of a list."""

    listed: list

    is_continuous = False

    @property
    def count(self):
        return len(self.listed)

    def at(self, position):
        """The value at a position from 0 up to, not including, 1."""
        return self.listed[int(position * self.count)]

    def all(self):
        return self.listed


@dataclass(frozen=True)
class Range:
    """Values from `least` to `most`, both included; whole ones if both are.

    Attributes:
        step: between neighbours, from `least` on; None: of whole numbers 1, else every number.
        is_log: whether ratios, not differences, are equally likely.
    """

    least: int | float
    most: int | float
    step: int | float | None = None
    is_log: bool = False

    @property
    def is_continuous(self):
        """Whether it has values everywhere between, rounded to DIGITS digits."""
        return self.step is None and not self._is_whole()

    @property
    def count(self):
        """How many values it has."""
        if not self.is_continuous:
            # 0.5 / 0.1 is less than 5
            return 1 + math.floor((self.most - self.least) / (self.step or 1) + 1e-9)
        if self.is_log:
            return 1 + _written_up_to(self.most) - _written_up_to(self.least)
        return 1 + math.floor((self.most - self.least) * 10 ** self._decimals())

    def at(self, position):
        """The value at a position from 0 up to, not including, 1."""
        if self.step is not None:
            return self._number(int(position * self.count))
        end = self.most + self._is_whole()
        if self.is_log:
            value = self.least * (end / self.least) ** position
        else:
            value = self.least + position * (end - self.least)
        if self._is_whole():
            value = math.floor(value)
        else:
            value = float(f"{value:.{DIGITS}g}") if self.is_log else round(value, self._decimals())
        return min(max(value, self.least), self.most)

    def all(self):
        """The values, unless it is continuous."""
        return [self._number(number) for number in range(self.count)]

    def _number(self, number):
        value = self.least + (self.step or 1) * number
        return value if is_integer(value) else float(f"{value:.12g}")  # 3 * 0.1 is not 0.3

    def _decimals(self):
        """So many that a range has at least 10 ** (DIGITS - 1) values."""
        return DIGITS - 1 - math.floor(math.log10(self.most - self.least))

    def _is_whole(self):
        return is_integer(self.least) and is_integer(self.most)


def _written_up_to(value):
    """The number of a positive value among those that DIGITS digits can write, from 1 on."""
    digits, exponent = f"{value:.{DIGITS - 1}e}".split("e")
    first = 10 ** (DIGITS - 1)
    return int(exponent) * 9 * first + int(digits.replace(".", "")) - first


def is_range(value):
    """Whether a value of an entry is meant to be a range."""
    return isinstance(value, dict) and bool(value.keys() & set(KINDS))


def read(value):
    """The Values or the Range that a list or dict of an entry is."""
    if isinstance(value, list):
        return Values(value)
    (kind,) = value.keys() & set(KINDS)
    return Range(*value[kind], step=value.get("step"), is_log=kind == "log")


def problem(value):
    """The mistake in a range, in words; None: there is none."""
    kinds = [kind for kind in KINDS if kind in value]
    if len(kinds) > 1 or set(value) - {kinds[0], *(["step"] if kinds == ["range"] else [])}:
        return f"found {value}; expected range: [from, to] and perhaps a step, or log: [from, to]"
    ends = value[kinds[0]]
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(is_number, ends)):
        texts = [end for end in ends if isinstance(end, str)] if isinstance(ends, list) else []
        hint = number_hint(texts[0]) if texts else ""
        return f"found {ends!r}; expected [from, to], two numbers{hint}"
    least, most = ends
    if least >= most or (kinds == ["log"] and least <= 0):
        above = " and above 0" if kinds == ["log"] else ""
        return f"found {ends}; expected the first to be less than the second{above}"
    step = value.get("step")
    if "step" in value and not (is_number(step) and 0 < step <= most - least):
        return f"found step {step!r}; expected a number above 0 up to {most - least:g}"
    return None


def draw(axes, count, seed):
    """The first `count` different candidates of a sequence.

    Args:
        axes: Values or a Range for each key.
        count: at most as many as there are.

    Returns:
        A tuple of values for each. Those of a smaller count are the first of them.
    """
    # Imported here, since few configs need it, and it takes as long as the rest of reading one.
    from scipy.stats import qmc

    exponent = max(count - 1, 1).bit_length()
    while True:
        # Whole powers of 2, of which each begins with the points of the smaller ones.
        points = qmc.Sobol(len(axes), rng=seed).random_base2(exponent)
        drawn = {
            repr(candidate): candidate
            for candidate in (
                tuple(axis.at(position) for axis, position in zip(axes, point, strict=True))
                for point in points.tolist()
            )
        }
        if len(drawn) >= count:
            return list(drawn.values())[:count]
        exponent += 1
