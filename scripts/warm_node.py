"""Keep the warm process of a node running until SIGTERM; profiles/allocation.sh starts it."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from allcores.machine import lifetime
from allcores_study.campaign import warm_start

if TYPE_CHECKING:
    from types import FrameType


def end(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # SLURM may send it twice
    sys.exit()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(f"{__doc__}\n    warm_node.py LOG")
    lifetime.die_with_parent()
    owner = os.path.expandvars(warm_start.OWNER_ON_NODE)
    warm_start.start(warm_start.TORCH, sys.argv[1], at_once=True, owner=owner)
    signal.signal(signal.SIGTERM, end)
    while True:
        signal.pause()
