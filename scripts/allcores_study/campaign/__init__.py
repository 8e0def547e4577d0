"""A call of snakemake, while it lasts and after: what is done, what failed, what runs again."""
