"""What there is of the results of a config, and the marks by which Snakemake sees it."""
