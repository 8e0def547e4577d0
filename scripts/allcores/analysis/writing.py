"""Write the files of a study: tidy CSVs, tables, figures and the report."""

import time
from pathlib import Path

from allcores.analysis import collect, pages, products, style, tidy, verdict


def _write_product(product, frames, folder):
    """Write a table as CSV and HTML or a figure as PNG and SVG; returns the table as it is
    read, {name: frame}, or {} for a figure."""
    module, stem = products.load(product.name), folder / product.name
    inputs = {name: frames[name] for name in product.inputs}
    if product.kind == "table":
        table = module.table(**inputs)
        table.to_csv(f"{stem}.csv", index=False)
        Path(f"{stem}.html").write_text(pages.of_table(product, table, frames["facts"]))
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
    frames = collect.of_study(job)
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
    sentences = pages.write(job, frames, again)
    print(*sentences, sep="\n")
    (folder / "verdict.rst").write_text(verdict.as_rst(job.name, sentences))
    job.write_made(made_of)
