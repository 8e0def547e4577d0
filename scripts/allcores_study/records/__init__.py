"""Identities of runs, records and stores of results, and the marks that Snakemake sees."""
