"""Make all that a study ends with: tidy CSVs, tables, figures, and a page that shows them."""

import argparse
import json
import sys
import time
from pathlib import Path

from allcores.machine import lifetime

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)

import pandas as pd

from allcores.analysis import (
    collect,
    html_table,
    metrics,
    products,
    report_page,
    selection,
    style,
    tidy,
)
from allcores.analysis.study import Study
from allcores.analysis.words import verdict
from allcores.study import grid
from allcores.study.results_folder import ResultsFolder


def collected(job):
    """Name -> frame of the tidy CSVs of a study, from the results of its runs; and a frame of what
    they have predicted."""
    all_metrics, folders, missing = [], [], list(job.missing)
    for run in job.runs:
        place = job.folder.run(run.path)
        try:
            found = collect.read(
                f"{place}/metrics.json", run, job.data, job.table.conditions[run.path]
            )
            all_metrics.append(found)
            folders.append(place)
        except ValueError as error:
            if not job.missing:
                raise
            print(error)
            missing.append(run.path)
    each = list(zip(all_metrics, folders, strict=True))
    measured = [metrics.measured(run, place, job.facts.metrics) for run, place in each]
    of_metrics = ("epochs", "staleness", "classes", "confusion")
    frames = {name: getattr(tidy, name)(all_metrics) for name in of_metrics} | {
        "runs": tidy.runs(all_metrics, measured),
        "utilisation": collect.utilisation(each),
        "candidates": selection.candidates(job, all_metrics, measured),
        "missing": pd.DataFrame({"run": missing, "log": [job.log(path) for path in missing]}),
    }
    frames["predictions"] = collect.predictions(each)
    return selection.by_family(job, frames)


def write_product(product, frames, facts, folder):
    """Write a table as CSV and HTML or a figure as PNG and SVG; returns the table as it is read."""
    module, stem = products.load(product.name), folder / product.name
    given = {name: frames[name] for name in product.made_from}
    told = {"facts": facts} if product.takes_facts else {}
    if product.kind == "table":
        table = module.table(**given, **told)
        table.to_csv(f"{stem}.csv", index=False)
        sheet = html_table.sheet(table, module.formats(table))
        Path(f"{stem}.html").write_text(html_table.page("table", title=product.title, table=sheet))
        return {product.name: tidy.read(f"{stem}.csv")}
    first = next(iter(given.values()))
    style.save(style.empty() if first.empty else module.figure(**given, **told), stem)
    return {}


def write_all(job, again):
    """Write all that a Study ends with."""
    folder = Path(job.place)
    frames = collected(job)
    predictions = frames.pop("predictions")
    predictions.to_parquet(job.predictions, index=False)
    for name, frame in frames.items():
        frame.to_csv(job.tidy[name], index=False)
    frames = {name: tidy.read(path) for name, path in (job.tidy | job.of_other).items()}
    frames["predictions"] = predictions
    # Tables first: figures are drawn from them.
    for product in sorted(job.products, key=lambda each: each.kind != "table"):
        begun = time.perf_counter()
        frames |= write_product(product, frames, job.facts, folder)
        caption = folder / "captions" / f"{product.name}.rst"
        caption.parent.mkdir(exist_ok=True)
        caption.write_text(job.facts.filled(product.caption) + "\n")
        print(f"{time.perf_counter() - begun:5.2f} s  {product.name}", flush=True)
    said = report_page.write(job, frames, again)
    print(*said, sep="\n")
    (folder / "verdict.rst").write_text(verdict.as_rst(job.name, said))
    job.write_made()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--config", required=True, type=Path, metavar="FILE", help="in configs/ of its results")
    add("--study", required=True, metavar="NAME", help="of that config")
    add("--again", required=True, metavar="COMMAND", help="that makes all of this again")
    add("--without-missing", action="store_true", help="make do with those runs that there are")
    add("--die-with-parent", type=int, metavar="PID", help="end when the parent process ends")
    flags = parser.parse_args()
    try:
        folder = ResultsFolder(str(flags.config.parent.parent))
        config = json.loads(flags.config.read_text())
        table = grid.expand(config)
        if flags.without_missing:
            table = folder.without_missing(table)
        write_all(Study(config, table, folder, flags.study), flags.again)
    except json.JSONDecodeError as error:
        sys.exit(f"report.py: {flags.config}: is no JSON: {error}")
    except (ValueError, OSError) as error:  # results that are damaged, or of something else
        sys.exit(f"report.py: {error}")
