"""Measure with which recipe a model trains fastest on the cores of this job."""

import sys
from pathlib import Path

from allcores import lean_torch, recipes
from allcores.run import Run

if __name__ == "__main__":
    with Path(snakemake.log[0]).open("w") as sys.stdout:
        sys.stderr = sys.stdout
        lean_torch.import_torch()
        recipes.calibrate(
            Run.from_json(snakemake.params.settings),
            Path(snakemake.input.info).parent,
            snakemake.threads,
            snakemake.output[0],
        )
