"""Assign every training sample to the fold in which it is held out."""

from pathlib import Path

from allcores.data import storage
from allcores.data.folds import write_folds

if __name__ == "__main__":
    folder = Path(snakemake.input.info).parent
    dataset = storage.open_dataset(folder)  # which refuses damaged labels
    labels = dataset.labels[: dataset.info["train"]]
    folds, seed = int(snakemake.wildcards.folds), int(snakemake.wildcards.seed)
    write_folds(snakemake.output[0], labels, folds, seed)
