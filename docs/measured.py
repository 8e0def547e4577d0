"""Write what benchmarks have measured into README.md and the pages of the documentation.

    <!-- measured campaign 1-3 -->      the first three rows of docs/measured/campaign.csv
    <!-- end -->
    <!-- measured backend 1-15 with "relative to" -->      those of the first 15 that say so
    <!-- end -->

What is between two such lines is replaced by a table, and a line on where and when it was measured.
A CSV comes from results/bench, where `make bench` writes it.
"""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r'(<!-- measured (\w+)(?: (\d+)-(\d+))?(?: with "(.*?)")? -->\n).*?(<!-- end -->)', re.DOTALL
)


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def filled(text):
    """The text of a page with the tables that its blocks ask for."""
    return BLOCK.sub(lambda block: f"{block[1]}{_table(*block.group(2, 3, 4, 5))}{block[6]}", text)


def _table(name, first, last, words):
    """The rows of a CSV; what was not measured yet is said to be."""
    file = ROOT / "docs" / "measured" / f"{name}.csv"
    if not file.exists():
        return "\n*not measured yet*\n\n"
    with file.open() as file:
        rows = list(csv.DictReader(file))
    shown = rows[int(first or 1) - 1 : int(last or len(rows))]
    shown = [row for row in shown if (words or "") in row["what"]]
    lines = [f"| {row['what'].strip()} | {_value(row)} |" for row in shown]
    conditions = [rows[0][key] for key in ("machine", "torch", "date", "commit")]
    note = "{}, torch {}, {}, commit {}; `{}`".format(*conditions, f"tests/benchmarks/{name}.py")
    head = ["", "| measured | median (range) |", "|---|---|"]
    return "\n".join([*head, *lines, "", f"*{note}*", "", ""])


def _value(row):
    median, low, high = (_rounded(float(row[key])) for key in ("median", "min", "max"))
    spread = "" if row["repeats"] == "1" else f" ({low} to {high})"
    return f"{median} {row['unit']}{spread}"


def _rounded(number):
    """Three digits, as people write them."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


if __name__ == "__main__":
    for page in pages():
        text = page.read_text()
        if filled(text) != text:
            page.write_text(filled(text))
            print(f"wrote {page.relative_to(ROOT)}")
