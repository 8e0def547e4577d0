"""Download or make a dataset and write it as memory-mapped arrays."""

import sys
from pathlib import Path

from allcores import datasets
from allcores.run import Choice

if __name__ == "__main__":
    sys.stdout = sys.stderr = Path(snakemake.log[0]).open("w", buffering=1)
    try:
        datasets.prepare(
            Choice.from_json(snakemake.params.settings),
            downloads=snakemake.params.downloads,
            folder=Path(snakemake.output.info).parent,
        )
    except (ValueError, OSError) as error:
        print(error)
        sys.exit(1)
