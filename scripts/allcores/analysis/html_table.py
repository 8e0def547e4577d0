"""A table as HTML: units in its heads, few columns at first, sorted by a click. No torch."""

import functools
from dataclasses import dataclass
from pathlib import Path

import jinja2
import pandas as pd

from allcores.analysis import tidy

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Number:
    """How the numbers of a column are written: {pattern} of value times factor, and a unit.

    With z in a pattern a zero that is one by rounding has no sign.
    """

    pattern: str
    unit: str = ""
    factor: float = 1.0

    def write(self, value):
        return self.pattern.format(self.factor * value)


WHOLE = Number("{:,.0f}")
TIMES = Number("{:.2f}", "×")  # noqa: RUF001 - a multiplication sign


def percent(digits, sign=""):
    return Number(f"{{:{sign}z.{digits}f}}", "points" if sign else "%", 100.0)


def number(metric, sign=""):
    """How values of a metrics.Metric are written, or, with a sign, differences of them.

    Args:
        sign: of numbers: "+" for all, "-" for negative ones only.
    """
    if not metric.unit:
        return Number(f"{{:{sign}z.4g}}")
    return Number(f"{{:{sign}z.2f}}", "points" if sign else "%", metric.scale)


def seconds(digits):
    return Number(f"{{:,.{digits}f}}", "s")


def sheet(frame, formats, compared=None):
    """The argument of the templates' macro `sheet`.

    Args:
        formats: column -> Number; other columns are texts. Missing values are left empty.
        compared: the columns to show at first, with those settings in which the rows differ; None:
            all.
    """
    same = [name for name in tidy.SETTINGS if name in frame and frame[name].nunique() == 1]
    shared = ", ".join(f"{name.replace('_', ' ')}: {frame[name].iloc[0]}" for name in same)
    shown = frame.drop(columns=same)
    first = [*shown] if compared is None else [*tidy.SETTINGS, *compared]
    heads = [
        {
            "name": name.removeprefix("swept_").replace("_", " "),
            "unit": formats[name].unit if name in formats else "",
            "classes": " ".join(
                [*(["number"] if name in formats else []), *([] if name in first else ["more"])]
            ),
        }
        for name in shown
    ]
    columns = [_cells(shown[name], formats.get(name)) for name in shown]
    return {
        "shared": shared,
        "heads": heads,
        "rows": [list(zip(cells, heads, strict=True)) for cells in zip(*columns, strict=True)],
        "has_more": any("more" in head["classes"] for head in heads),
    }


def _cells(values, number):
    """The text of each value, and the value to sort by."""
    return [
        {"text": "", "value": ""}
        if pd.isna(value)
        else {"text": number.write(value) if number else str(value), "value": value}
        for value in values
    ]


@functools.cache
def _templates():
    return jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True)


def page(template, **values):
    """A self-contained page made from one of the templates."""
    return _templates().get_template(f"{template}.html").render(**values)
