"""Signs of life of the ranks of a run, for the process that watches them."""

from __future__ import annotations

import mmap
import struct
import time
from typing import Any

ENTRY = struct.Struct("d24s")  # when (CLOCK_MONOTONIC, seconds), in which phase


class Heartbeats:
    """The phase that each rank entered last, and when.

    Create it before forking the ranks, which share its memory.
    """

    def __init__(self, ranks: Any) -> None:
        self.memory = mmap.mmap(-1, ranks * ENTRY.size)
        for rank in range(ranks):
            self.beat(rank, "start-up")

    def beat(self, rank: int, phase: str) -> None:
        """Note that a rank enters a phase; None: its clock is stopped."""
        name = (phase or "checkpoint").encode()
        ENTRY.pack_into(self.memory, rank * ENTRY.size, time.monotonic(), name)

    def last(self, rank: int) -> tuple[float, str]:
        """Return (when, phase) of the last beat of a rank."""
        when, name = ENTRY.unpack_from(self.memory, rank * ENTRY.size)
        return when, name.rstrip(b"\0").decode()
