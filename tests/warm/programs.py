"""A warm process as scripts/warm_process.py is one, for tests in folders of their own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
# The folder that a program is called in, whichever that is: a model of the user's may be there.
sys.path.append("")

import warm_process
from allcores.machine import cores
from allcores_study.campaign import warm_start


def torch():
    """And what train.py imports where it also prepares a dataset, which it does by hand only."""
    warm_process.torch()
    warm_process.pandas()


if __name__ == "__main__":
    name, *called = sys.argv[1:]
    cores.set_thread_variables(1)
    warm_up = {warm_start.TORCH: torch, warm_start.PANDAS: warm_process.pandas}[name]
    warm_start.serve(*called, warm_up)
