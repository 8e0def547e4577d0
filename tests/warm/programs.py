"""A warm process as scripts/warm_process.py is one, for tests in folders of their own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
# The folder that a program is called in, whichever that is: a model of the user's may be there.
sys.path.append("")

import warm_process
from allcores.machine import cores
from allcores_study.campaign import warm_start


def warm_up():
    """Import all before the first program: tests of programs by hand use all of it."""
    warm_process.of_smoke_tests()
    warm_process.of_all()


if __name__ == "__main__":
    cores.set_thread_variables(1)
    warm_start.serve(*sys.argv[1:], warm_up)
