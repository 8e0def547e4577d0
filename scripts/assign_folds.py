"""Assign every training sample to the fold in which it is held out."""

import json
from pathlib import Path

import numpy as np

from allcores.data import assign_folds

if __name__ == "__main__":
    info = json.loads(Path(snakemake.input.info).read_text())
    labels = np.load(snakemake.input.labels)[: info["train"]]
    folds = assign_folds(labels, int(snakemake.wildcards.folds), int(snakemake.wildcards.seed))
    np.save(snakemake.output[0], folds)
