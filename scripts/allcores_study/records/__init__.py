"""What identifies a run; records and stores of results; marks, by which Snakemake sees them."""
