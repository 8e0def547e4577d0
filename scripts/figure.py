"""Draw one figure of a study, as PNG and SVG, with the module of analysis/figures/ for it."""

from allcores.analysis import products, style, tidy

if __name__ == "__main__":
    module = products.load(snakemake.wildcards.product)
    told = snakemake.params.facts
    facts = {"facts": products.Facts(**told)} if told else {}
    frames = {name: tidy.read(path) for name, path in snakemake.input.items()}
    first = next(iter(frames.values()))
    figure = style.empty() if first.empty else module.figure(**frames, **facts)
    style.save(figure, snakemake.output)
