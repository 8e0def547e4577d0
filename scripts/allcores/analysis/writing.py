"""Write the files of a study: tidy CSVs, tables, figures and the report."""

import time
from pathlib import Path

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
    verdict,
)


def _collected(job):
    """Name -> frame of each tidy CSV of a study, made from the results of its runs, and
    `predictions`: a frame of what they have predicted."""
    all_metrics, all_files, missing = [], [], list(job.missing)
    for run in job.runs:
        files = job.folder.run_files(run.path)
        try:
            conditions = job.table.conditions[run.path]
            all_metrics.append(collect.read(files, run, job.data, conditions))
            all_files.append(files)
        except ValueError as error:
            if not job.missing:
                raise
            print(error)
            missing.append(run.path)
    pairs = list(zip(all_metrics, all_files, strict=True))
    measured = [metrics.measured(run, files, job.facts.metrics) for run, files in pairs]
    names = ("epochs", "staleness", "classes", "confusion")
    frames = {name: getattr(tidy, name)(all_metrics) for name in names} | {
        "runs": tidy.runs(all_metrics, measured),
        "utilisation": collect.of_all(pairs, collect.utilisation),
        "candidates": selection.candidates(job, all_metrics, measured),
        "missing": pd.DataFrame({"run": missing, "log": [job.log(path) for path in missing]}),
    }
    frames["predictions"] = collect.of_all(pairs, metrics.predictions)
    return selection.by_family(job, frames)


def _write_product(product, frames, folder):
    """Write a table as CSV and HTML or a figure as PNG and SVG; returns the table as it is
    read, {name: frame}, or {} for a figure."""
    module, stem = products.load(product.name), folder / product.name
    inputs = {name: frames[name] for name in product.inputs}
    if product.kind == "table":
        table = module.table(**inputs)
        table.to_csv(f"{stem}.csv", index=False)
        sheet = html_table.sheet(table, module.formats(table))
        sheet |= report_page.described(product, frames["facts"])
        Path(f"{stem}.html").write_text(html_table.page("table", title=product.title, table=sheet))
        return {product.name: tidy.read(f"{stem}.csv")}
    first = next(iter(inputs.values()))
    style.save(style.empty() if first.empty else module.figure(**inputs), stem)
    return {}


def write(job, again):
    """Write all files of a Study: tidy CSVs, tables, figures, and a page that shows them.

    Args:
        job: the Study.
        again: the command that makes all of this again, to be shown.

    Raises:
        ValueError: a result is damaged, or belongs to another run than the config's.
        OSError: a file cannot be read or written.
    """
    folder = Path(job.place)
    folder.mkdir(parents=True, exist_ok=True)
    made_of = job.made_of  # before a metric of the user's is loaded, which may change sys.path
    frames = _collected(job)
    predictions = frames.pop("predictions")
    predictions.to_parquet(job.predictions, index=False)
    for name, frame in frames.items():
        frame.to_csv(job.tidy[name], index=False)
    frames = {name: tidy.read(path) for name, path in (job.tidy | job.csvs_of_other).items()}
    frames |= {"predictions": predictions, "facts": job.facts}
    # Tables first: figures are drawn from them.
    for product in sorted(job.products, key=lambda item: item.kind != "table"):
        started = time.perf_counter()
        frames |= _write_product(product, frames, folder)
        caption = folder / "captions" / f"{product.name}.rst"
        caption.parent.mkdir(exist_ok=True)
        caption.write_text(job.facts.filled(product.caption) + "\n")
        print(f"{time.perf_counter() - started:5.2f} s  {product.name}", flush=True)
    sentences = report_page.write(job, frames, again)
    print(*sentences, sep="\n")
    (folder / "verdict.rst").write_text(verdict.as_rst(job.name, sentences))
    job.write_made(made_of)
