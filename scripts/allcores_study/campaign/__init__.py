"""A call of snakemake: what its rules ask."""
