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
    folder, listener, caller = sys.argv[1:]
    warm_start.serve(folder, int(listener), int(caller), warm_up)
