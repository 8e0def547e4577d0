"""An invocation of snakemake: what its rules ask."""
