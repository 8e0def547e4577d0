"""Make one table of a study, as CSV and HTML, with the module of analysis/tables/ for it."""

from pathlib import Path

from allcores.analysis import html_table, products, tidy

if __name__ == "__main__":
    module = products.load(snakemake.wildcards.product)
    told = snakemake.params.facts
    facts = {"facts": products.Facts(**told)} if told else {}
    frames = {name: tidy.read(path) for name, path in snakemake.input.items()}
    table = module.table(**frames, **facts)
    table.to_csv(snakemake.output.csv, index=False)
    Path(snakemake.output.html).write_text(html_table.page(table, module.formats(table)))
