"""Measure which recipe trains a model fastest on the cores of this job."""

import sys
from pathlib import Path

from allcores.machine import cores, lean_torch
from allcores.study.run import Run
from allcores.training import recipes

if __name__ == "__main__":
    sys.stdout = sys.stderr = Path(snakemake.log[0]).open("w", buffering=1)
    lean_torch.import_torch()
    recipes.calibrate(
        Run.from_json(snakemake.params.settings),
        Path(snakemake.input.info).parent,
        min(snakemake.threads, cores.allowed()),
        snakemake.output[0],
    )
