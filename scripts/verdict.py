"""Say what a study found, as HTML and for the first page of Snakemake's report."""

from pathlib import Path

from allcores.analysis import products, tidy, verdict

if __name__ == "__main__":
    study, facts = snakemake.wildcards.study, products.Facts(**snakemake.params.facts)
    found = {name: tidy.read(path) for name, path in snakemake.input.items()}
    said = verdict.sentences(found, snakemake.params.spoken_of, facts)
    print(*said, sep="\n")
    Path(snakemake.output.html).write_text(verdict.as_html(study, said))
    Path(snakemake.output.rst).write_text(verdict.as_rst(study, said))
