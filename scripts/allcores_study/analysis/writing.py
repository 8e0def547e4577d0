"""Write the files of a study: tidy CSVs, tables, figures and self-contained pages."""

from __future__ import annotations

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
    head,
    methods,
    products,
    style,
    tidy,
    verdict,
    wording,
)
from allcores_study.analysis.selection import SWEPT_COLUMN
from allcores_study.analysis.study import VERDICT

if TYPE_CHECKING:
    from allcores_study.analysis.products import Product, StudyFacts
    from allcores_study.analysis.study import Study
    from allcores_study.analysis.wording import Number

TEMPLATES = Path(__file__).parent / "templates"
# The page opens with at most LEAD sentences and LEADING figures or tables. UNFOLDED further figures
# are shown, the others are folded.
LEAD, LEADING, UNFOLDED = 4, 3, 7
LONGEST = 300  # characters of the reason why a figure was not drawn
# reStructuredText markup in captions -> HTML element.
MARKUP = {r"``(.+?)``": "code", r"\*\*(.+?)\*\*": "b", r"\*(.+?)\*": "i"}


def write(
    study: Study,
    again: str,
    importance: Callable[[dict[str, Any]], pd.DataFrame],
) -> None:
    """Write all files of a study: tidy CSVs, tables, figures, and a page that shows them.

    Args:
        again: the command that rebuilds all of this, for the page.
        importance: makes the tidy CSV of that name from the others; it loads trained models.

    Raises:
        ValueError: a result is damaged, or belongs to another run than the config's.
        OSError: a file cannot be read or written.
    """
    folder = Path(study.place)
    folder.mkdir(parents=True, exist_ok=True)
    frames = collect.of_study(study)
    frames["importance"] = importance(frames)
    predictions, datasets = frames.pop("predictions"), frames.pop("datasets")
    predictions.to_parquet(study.predictions, index=False)
    for name, frame in frames.items():
        frame.to_csv(study.tidy[name], index=False)
    frames = {name: tidy.read(path) for name, path in (study.tidy | study.csvs_of_other).items()}
    frames |= {"predictions": predictions, "datasets": datasets, "facts": study.facts}
    for product in study.products:
        if product.kind == "table":
            frames[product.name] = _write_table(product, frames, folder)
    for product in study.products:
        if product.kind == "figure":
            _write_figure(product, frames, folder)
    sentences = _write_report(study, frames, again)
    print(*sentences, sep="\n")
    (folder / VERDICT).write_text("".join(f"{sentence}\n" for sentence in sentences))


def _write_table(product: Product, frames: dict[str, Any], folder: Path) -> pd.DataFrame:
    """Write a table as CSV, and return it as read from there."""
    table = products.load(product.name).table(**{name: frames[name] for name in product.inputs})
    file = folder / f"{product.name}.csv"
    table.to_csv(file, index=False)
    return tidy.read(file)


def _write_figure(product: Product, frames: dict[str, Any], folder: Path) -> None:
    """Write a figure as PNG and SVG; if it cannot be drawn, with the reason in its place."""
    began = time.perf_counter()
    inputs = {name: frames[name] for name in product.inputs}
    is_empty = next(iter(inputs.values())).empty
    try:
        figure = style.empty() if is_empty else products.load(product.name).figure(**inputs)
    except Exception as error:  # the rest of the report is worth reading
        traceback.print_exc()
        figure = style.empty(f"not drawn: {type(error).__name__}: {error}"[:LONGEST])
    style.save(figure, folder / product.name)
    print(f"{time.perf_counter() - began:5.2f} s  {product.name}", flush=True)


def _write_report(study: Study, frames: dict[str, Any], again: str) -> list[str]:
    """Write the page of a study, and return the sentences of the verdict.

    The figures must already exist as SVG.

    Args:
        frames: name of a tidy CSV or table -> its frame.
        again: the command that rebuilds all of this.
    """
    facts = study.facts
    names = [product.name for product in study.products if product.inputs_of_sentences]
    sentences = verdict.sentences(frames, names, facts, study.notes)
    lead = verdict.lead(frames, facts)[:LEAD]
    blocks = _blocks(Path(study.place), frames, study.products, facts)
    candidates = [block for block in blocks if block["leading"]]
    leading = sorted(candidates, key=lambda block: block["leading"])[:LEADING]
    others = [block for block in blocks if block not in leading]
    figures = [block for block in others if "svg" in block]
    for block in figures[UNFOLDED:]:
        block["is_folded"] = True
    page = page_of(
        title=facts.study,
        head=head.facts(frames["runs"], frames["candidates"], frames["missing"], study.infos),
        lead=list(map(_in_html, lead)),
        details=list(map(_in_html, sentences[len(lead) :])),
        leading=leading,
        sections=[
            {"name": name, "blocks": [block for block in others if block["section"] == name]}
            for name in _section_names(leading, others)
        ],
        methods=methods.table(frames, study.runs, facts, study.infos),
        config=yaml.safe_dump(study.config_part, sort_keys=False),
        citation=methods.bibtex(frames, study.runs),
        again=again,
    )
    write_text(study.page, page)
    return sentences


def _section_names(leading: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[str]:
    """Return the sections of the other blocks, that of the first leading block first."""
    names = {block["section"] for block in others}
    first = [block["section"] for block in leading[:1] if block["section"] in names]
    return list(dict.fromkeys([*first, *sorted(names)]))


def _in_html(sentence: str) -> str:
    return re.sub("`(.+?)`", r"<code>\1</code>", escape(sentence, quote=False))


def _blocks(
    folder: Path, frames: dict[str, Any], study_products: list[Product], facts: StudyFacts
) -> list[dict[str, Any]]:
    """Return the blocks of the page: figures with their tables, and tables without a figure."""
    sheets = {
        product.name: sheet(product, frames[product.name], facts)
        for product in study_products
        if product.kind == "table" and len(frames[product.name])
    }
    blocks, shown = [], set()
    for product in study_products:
        if product.kind == "figure":
            names = {product.name.replace("_figure", "_table"), *product.inputs} & sheets.keys()
            drawing = _inline((folder / f"{product.name}.svg").read_text(), product.name)
            tables = [sheets[name] for name in sorted(names)]
            blocks.append(described(product, facts) | {"svg": drawing, "tables": tables})
            shown |= names
    alone = [sheet for name, sheet in sheets.items() if name not in shown]
    return sorted([*blocks, *alone], key=lambda block: block["order"])


def described(product: Product, facts: StudyFacts) -> dict[str, Any]:
    """Return the title, section and caption of a product, for the page."""
    plain = facts.filled(product.caption)
    caption = escape(plain[0].upper() + plain[1:], quote=False)
    for markup, tag in MARKUP.items():
        caption = re.sub(markup, rf"<{tag}>\1</{tag}>", caption)
    keys = ("name", "title", "section", "order", "leading")
    return {key: getattr(product, key) for key in keys} | {"caption": caption}


def sheet(product: Product, frame: pd.DataFrame, facts: StudyFacts) -> dict[str, Any]:
    """Return the argument of the template's macro `sheet`: a table with its title and caption."""
    module = products.load(product.name)
    compared = getattr(module, "COMPARED", None)
    if compared:
        compared += tuple(metric.name for metric in facts.metrics)
        swept = [name for name in frame if name.startswith(SWEPT_COLUMN)]
        compared += tuple(tidy.varying(frame, swept))
    own, others = getattr(module, "NUMBERS", {}), getattr(module, "OTHERS", wording.OTHERS)
    formats = wording.formats(frame, facts.metrics, own, others)
    titles = {metric.name: metric.title for metric in facts.metrics}
    return described(product, facts) | cells(frame, formats, compared, titles)


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
    shared = ", ".join(f"{name.replace('_', ' ')}: {frame[name].iloc[0]}" for name in same)
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
