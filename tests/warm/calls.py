"""The process from which tests fork calls of snakemake."""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from allcores_study.campaign import warm_start


def warm_up():
    # What a call imports while it reads a workflow: half of the time of a dry run.
    for name in (
        *("docutils.core", "docutils.parsers.rst", "jinja2", "pydantic", "numpy", "pandas"),
        *("psutil", "pygments.lexers", "requests", "snakemake.cli", "snakemake.report"),
        *("snakemake.script", "statistics", "tqdm", "yaml", "yte"),
    ):
        importlib.import_module(name)


if __name__ == "__main__":
    warm_start.serve(*sys.argv[1:], warm_up)
