"""Let what a program forks for smoke tests come from the warm process of the tests."""

import os
from pathlib import Path

from allcores_study.campaign import warm_start

_command = warm_start.command


def forked(program, is_warm, place=None):
    """As in a call of snakemake; by hand, a program imports torch once more for them."""
    return _command(program, True, place or Path(os.environ["ALLCORES_TESTS"], "programs"))


warm_start.command = forked
