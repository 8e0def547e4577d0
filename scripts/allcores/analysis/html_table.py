"""A table as a page of HTML. No torch."""

from html import escape

import pandas as pd

from allcores.analysis import tidy

STYLE = """
<style>
  body { font: 15px/1.5 system-ui, sans-serif; color: #222; margin: 1.5em; }
  table { border-collapse: collapse; }
  th, td { padding: .3em .9em; border-bottom: 1px solid #ddd; }
  thead th, td { text-align: right; white-space: nowrap; }
  th { border-bottom: 2px solid #222; position: sticky; top: 0; background: #fff; }
  tbody tr:hover { background: #f4f4f4; }
</style>
"""


def page(frame, formats):
    """A self-contained page that shows a table; what is the same in all rows stands above it.

    Args:
        formats: column -> how a value of it is written; missing values are left empty. Columns
            without a format are texts.
    """
    same = [name for name in tidy.CELL if name in frame and frame[name].nunique() == 1]
    above = ", ".join(f"{name.replace('_', ' ')}: {frame[name].iloc[0]}" for name in same)
    shown = frame.drop(columns=same)
    texts = [number for number, name in enumerate(shown, start=1) if name not in formats]
    to_the_left = ", ".join(f"thead tr th:nth-child({n}), td:nth-child({n})" for n in texts)
    written = pd.DataFrame(
        {name.replace("_", " "): _written(shown[name], formats.get(name, str)) for name in shown}
    )
    with pd.option_context("display.max_colwidth", None):  # else it would shorten long texts
        table = written.to_html(index=False, border=0)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">{STYLE}'
        f"<style>{to_the_left} {{ text-align: left; }}</style>"
        f"<p>{escape(above)}</p>{table}</html>"
    )


def _written(values, write):
    return ["" if pd.isna(value) else write(value) for value in values]
