"""Make all that a study ends with: tidy CSVs, tables, figures, and a page that shows them."""

import sys
import time
from pathlib import Path

import pandas as pd

from allcores.analysis import collect, html_table, jobs, products, report_page, style, tidy, verdict
from allcores.study.run import Run


def collected(job, runs):
    """Name -> frame of the tidy CSVs of a study, from the results of its Runs."""
    all_metrics, traces, missing = [], [], list(job.params.missing)
    for run, path, trace in zip(runs, job.input.metrics, job.input.traces, strict=True):
        conditions = {name: run.path in paths for name, paths in job.params.asked.items()}
        try:
            all_metrics.append(collect.read(path, run, job.params.data, **conditions))
            traces.append(trace)
        except ValueError as error:
            if not job.params.missing:
                raise
            print(error)
            missing.append(run.path)
    of_metrics = ("runs", "epochs", "staleness", "classes", "confusion")
    return {name: getattr(tidy, name)(all_metrics) for name in of_metrics} | {
        "utilisation": collect.utilisation(all_metrics, traces),
        "missing": pd.DataFrame({"run": missing}),
    }


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


def write_all(job):
    folder, facts = Path(job.params.folder), products.Facts(**job.params.facts)
    runs = [Run.from_json(settings) for settings in job.params.settings]
    for name, frame in collected(job, runs).items():
        frame.to_csv(job.output[name], index=False)
    frames = {name: tidy.read(job.output[name]) for name in jobs.TIDY}
    frames |= {name: tidy.read(path) for name, path in job.input.items() if jobs.OTHER in name}
    of_study = [products.known()[name] for name in job.params.products]
    # Tables first: figures are drawn from them.
    for product in sorted(of_study, key=lambda each: each.kind != "table"):
        begun = time.perf_counter()
        frames |= write_product(product, frames, facts, folder)
        caption = folder / "captions" / f"{product.name}.rst"
        caption.write_text(product.caption.format(**vars(facts)) + "\n")
        print(f"{time.perf_counter() - begun:5.2f} s  {product.name}", flush=True)
    said = report_page.write(job.output.page, frames, of_study, runs, facts, job.params.again)
    print(*said, sep="\n")
    (folder / "verdict.rst").write_text(verdict.as_rst(facts.study, said))


if __name__ == "__main__":
    sys.stdout = sys.stderr = Path(snakemake.log[0]).open("w", buffering=1)
    write_all(snakemake)
