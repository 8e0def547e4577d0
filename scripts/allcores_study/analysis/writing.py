"""Write the files of a study: tidy CSVs, tables, figures and self-contained pages."""

from __future__ import annotations

import inspect
import re
import time
import traceback
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pandas as pd
import yaml

from allcores.files import write_text
from allcores_study.analysis import (
    collect,
    methods,
    products,
    style,
    tidy,
    verdict,
    wording,
)
from allcores_study.analysis.selection import SWEPT_COLUMN
from allcores_study.analysis.study import CHECK, VERDICT

if TYPE_CHECKING:
    from allcores_study.analysis.products import StudyFacts
    from allcores_study.analysis.study import Study
    from allcores_study.analysis.wording import Number

TEMPLATES = Path(__file__).parent / "templates"
# The page opens with at most LEAD sentences and OPENING figures or tables. UNFOLDED further figures
# are shown, the others are folded.
LEAD, OPENING, UNFOLDED = 4, 3, 7
SUFFIXES = {"table": ("csv",), "figure": ("png", "svg")}
MODELS = "models_table"  # not on the page if there is one model: the accuracy table has it
ALWAYS = ("accuracy_table", MODELS)  # also if all runs have diverged
LONGEST = 300  # characters of the reason why a figure was not drawn
# reStructuredText markup in captions -> HTML element.
MARKUP = {r"``(.+?)``": "code", r"\*\*(.+?)\*\*": "b", r"\*(.+?)\*": "i"}


def write(
    study: Study,
    again: str,
    importance: Callable[[dict[str, Any]], pd.DataFrame],
) -> list[str]:
    """Write all files of a study: tidy CSVs, tables, figures, and a page that shows them.

    Args:
        again: the command that rebuilds all of this, for the page.
        importance: makes the tidy CSV of that name from the others; it loads trained models.

    Returns:
        The names of the files of tables and figures.

    Raises:
        ValueError: a result is damaged.
        OSError: a file cannot be read or written.
    """
    folder = Path(study.place)
    folder.mkdir(parents=True, exist_ok=True)
    frames = collect.of_study(study)
    frames["importance"] = importance(frames)
    predictions, datasets = frames.pop("predictions"), frames.pop("datasets")
    collect.write_predictions(study.predictions, frames.pop("results"), datasets)
    for name, frame in frames.items():
        frame.to_csv(study.tidy[name], index=False)
    frames = {name: tidy.read(path) for name, path in (study.tidy | study.csvs_of_other).items()}
    frames |= {"predictions": predictions, "datasets": datasets, "facts": study.facts}
    names = list(products.sections())
    made = [
        name
        for kind, make in (("table", _write_table), ("figure", _write_figure))
        for name in names
        if products.kind_of(name) == kind and make(name, frames, folder)
    ]
    sentences = _write_report(study, frames, sorted(made, key=names.index), again)
    print(*sentences, sep="\n")
    (folder / VERDICT).write_text("".join(f"{sentence}\n" for sentence in sentences))
    return [f"{name}.{suffix}" for name in made for suffix in SUFFIXES[products.kind_of(name)]]


def _write_table(name: str, frames: dict[str, Any], folder: Path) -> bool:
    """Write a table as CSV, and add it to the frames, as it is read; False: nothing to show."""
    function = products.load(name).table
    arguments = products.arguments_of(function, frames)
    table = function(**arguments) if arguments else None
    if table is None or (table.empty and name not in ALWAYS):
        return False
    file = folder / f"{name}.csv"
    table.to_csv(file, index=False)
    frames[name] = tidy.read(file)
    return True


def _write_figure(name: str, frames: dict[str, Any], folder: Path) -> bool:
    """Write a figure as PNG and SVG, with the reason in its place if it fails; False: none."""
    began = time.perf_counter()
    try:
        function = products.load(name).figure
        arguments = products.arguments_of(function, frames)
        figure = function(**arguments) if arguments else None
        if figure is None:
            return False
        style.save(figure, folder / name)
    except Exception as error:  # the rest of the report is worth reading
        traceback.print_exc()
        reason = f"not drawn: {type(error).__name__}: {error}"[:LONGEST]
        style.save(style.empty(reason), folder / name)
    print(f"{time.perf_counter() - began:5.2f} s  {name}", flush=True)
    return True


def _write_report(study: Study, frames: dict[str, Any], made: list[str], again: str) -> list[str]:
    """Write the page of a study, and return the sentences of the verdict.

    The figures must already exist as SVG.

    Args:
        frames: name of a tidy CSV or table -> its frame.
        made: the names of the products, in the order of the page.
        again: the command that rebuilds all of this.
    """
    facts = study.facts
    sentences = verdict.sentences(frames, made, facts, study.notes)
    lead = verdict.lead(frames, facts)[:LEAD]
    notes = [sentence for sentence in sentences if sentence.startswith(CHECK)]
    blocks = _blocks(Path(study.place), frames, made, facts)
    ranks = {name: rank for rank, name in enumerate(products.LEADING)}
    leading = [block for block in blocks if block["name"] in ranks]
    leading = sorted(leading, key=lambda block: ranks[block["name"]])[:OPENING]
    others = [block for block in blocks if block not in leading]
    figures = [block for block in others if "svg" in block]
    for block in figures[UNFOLDED:]:
        block["is_folded"] = True
    page = page_of(
        title=facts.study,
        line=methods.line(frames["runs"], study.infos),
        lead=list(map(_in_html, lead)),
        notes=list(map(_in_html, notes)),
        details=[_in_html(one) for one in sentences[len(lead) :] if one not in notes],
        leading=leading,
        sections=[
            {"name": name, "blocks": [block for block in others if block["section"] == name]}
            for name in _section_names(leading, others)
        ],
        methods=methods.table(frames, study.runs, facts, study.infos),
        config=yaml.safe_dump(study.config_part, sort_keys=False),
        again=again,
    )
    write_text(study.page, page)
    return sentences


def _section_names(leading: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[str]:
    """Return the sections of the other blocks, that of the first leading block first."""
    names = [block["section"] for block in others]
    first = [block["section"] for block in leading[:1] if block["section"] in names]
    return list(dict.fromkeys([*first, *names]))


def _in_html(sentence: str) -> str:
    return re.sub("`(.+?)`", r"<code>\1</code>", escape(sentence, quote=False))


def _blocks(
    folder: Path, frames: dict[str, Any], made: list[str], facts: StudyFacts
) -> list[dict[str, Any]]:
    """Return the blocks of the page: figures with their tables, and tables without a figure."""
    sheets = {
        name: sheet(name, frames[name], facts)
        for name in made
        if products.kind_of(name) == "table" and len(frames[name]) > (name == MODELS)
    }
    blocks = [block for name in made if (block := _block(name, folder, sheets, facts))]
    shown = {table["name"] for block in blocks for table in block.get("tables", ())}
    return [block for block in blocks if block["name"] not in shown]


def _block(
    name: str, folder: Path, sheets: dict[str, dict[str, Any]], facts: StudyFacts
) -> dict[str, Any] | None:
    if products.kind_of(name) == "table":
        return sheets.get(name)
    drawn_from = inspect.signature(products.load(name).figure).parameters
    tables = {name.replace("_figure", "_table"), *drawn_from} & sheets.keys()
    drawing = _inline((folder / f"{name}.svg").read_text(), name)
    beside = {"svg": drawing, "tables": [sheets[table] for table in sorted(tables)]}
    return described(name, facts) | beside


def described(name: str, facts: StudyFacts) -> dict[str, Any]:
    """Return the title, section and caption of a product, for the page."""
    module = products.load(name)
    plain = facts.filled(" ".join(module.CAPTION.split()))
    caption = escape(plain[0].upper() + plain[1:], quote=False)
    for markup, tag in MARKUP.items():
        caption = re.sub(markup, rf"<{tag}>\1</{tag}>", caption)
    section = facts.filled(products.sections()[name])
    title = facts.filled(module.TITLE)
    return {"name": name, "title": title, "section": section, "caption": caption}


def sheet(name: str, frame: pd.DataFrame, facts: StudyFacts) -> dict[str, Any]:
    """Return the argument of the template's macro `sheet`: a table with its title and caption."""
    module = products.load(name)
    compared = getattr(module, "COMPARED", None)
    if compared:
        compared += tuple(metric.name for metric in facts.metrics)
        swept = [column for column in frame if column.startswith(SWEPT_COLUMN)]
        compared += tuple(tidy.varying(frame, swept))
    own, others = getattr(module, "NUMBERS", {}), getattr(module, "OTHERS", wording.OTHERS)
    formats = wording.formats(frame, facts.metrics, own, others)
    titles = {metric.name: metric.title for metric in facts.metrics}
    return described(name, facts) | cells(frame, formats, compared, titles)


def cells(
    frame: pd.DataFrame,
    formats: dict[str, Number],
    compared: Iterable[str] | None = None,
    titles: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return the headings and rows of a table for HTML.

    Args:
        formats: column -> wording.Number; other columns are texts. Missing values become empty
            cells.
        compared: columns to show, in addition to the settings in which the rows differ; None: all.
        titles: column -> its heading, where that is not its name.
    """
    same = [name for name in tidy.SETTINGS if name in frame and frame[name].nunique() == 1]
    values = {name: frame[name].dropna().iloc[0] for name in same}
    shared = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in values.items())
    kept = [*frame] if compared is None else [*tidy.SETTINGS, *compared]
    shown = frame[[name for name in frame if name in kept and name not in same]]
    heads = [
        {
            "name": (titles or {}).get(name, name.removeprefix("swept_").replace("_", " ")),
            "unit": formats[name].unit if name in formats else "",
            "classes": "number" if name in formats else "",
        }
        for name in shown
    ]
    columns = [_cells(shown[name], formats.get(name)) for name in shown]
    return {
        "shared": shared,
        "heads": heads,
        "rows": [list(zip(cells, heads, strict=True)) for cells in zip(*columns, strict=True)],
    }


def _cells(values: pd.Series, number: Number | None) -> list[dict[str, Any]]:
    """Return the text of each value, and the value to sort by."""
    return [
        {"text": "", "value": ""}
        if pd.isna(value)
        else {"text": number.write(value) if number else str(value), "value": value}
        for value in values
    ]


def page_of(**values: Any) -> str:
    """Render the template of the page, which needs no other file."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    return (
        jinja2.Environment(loader=loader, autoescape=True)
        .get_template("report.html")
        .render(**values)
    )


def _inline(svg: str, name: str) -> str:
    """Return an SVG for a page with others: its ids get the name as a prefix."""
    svg = re.sub("<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
