"""The process from which tests fork calls of snakemake."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from allcores.machine import warm_start


def warm_up():
    import jsonschema  # noqa: F401
    import snakemake.cli  # noqa: F401
    import yaml  # noqa: F401


if __name__ == "__main__":
    warm_start.serve(*sys.argv[2:], warm_up)
