"""Let what a program forks for smoke tests come from the warm processes of the tests."""

import contextlib
import os

from allcores_study.campaign import warm_start

_command = warm_start.command


def forked(program, warm, owner=None):
    """As in a call of snakemake; by hand, a program imports torch once more for them."""
    with contextlib.chdir(os.environ["ALLCORES_TESTS"]):
        return _command(program, warm or warm_start.TORCH, owner or "programs")


warm_start.command = forked
