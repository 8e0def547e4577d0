"""Identities of runs, records of results, and the marks that Snakemake sees."""
