"""Assign every training sample to the fold in which it is held out."""

from pathlib import Path

import numpy as np

from allcores import data

if __name__ == "__main__":
    folder = Path(snakemake.input.info).parent
    labels = np.load(folder / "labels.npy")[: data.read_info(folder)["train"]]
    folds, seed = int(snakemake.wildcards.folds), int(snakemake.wildcards.seed)
    data.write_folds(snakemake.output[0], labels, folds, seed)
