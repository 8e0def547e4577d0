"""Let what a program forks for smoke tests come from the warm process of the tests."""

import contextlib
import os

from allcores_study.campaign import warm_start

_command = warm_start.command


def forked(program, is_warm, owner=None):
    """As in a call of snakemake; by hand, a program imports torch once more for them."""
    with contextlib.chdir(os.environ["ALLCORES_TESTS"]):
        return _command(program, True, owner or "programs")


warm_start.command = forked
