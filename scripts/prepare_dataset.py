"""Download or make a dataset and write it as memory-mapped arrays."""

import sys
from pathlib import Path

from allcores.data import preparation
from allcores.study.run import Choice

if __name__ == "__main__":
    sys.stdout = sys.stderr = Path(snakemake.log[0]).open("w", buffering=1)
    try:
        preparation.prepare(
            Choice.from_json(snakemake.params.settings),
            downloads=snakemake.params.downloads,
            folder=Path(snakemake.output.info).parent,
        )
    except (ValueError, OSError) as error:
        print(error)
        sys.exit(1)
