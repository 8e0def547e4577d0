"""Signs of life of the ranks of a run, for the process that watches over them."""

import mmap
import struct
import time

ENTRY = struct.Struct("d24s")  # when (CLOCK_MONOTONIC, seconds), in which phase


class Heartbeats:
    """The phase that each rank entered last, and when.

    Made before the ranks are forked, in memory that they share.
    """

    def __init__(self, ranks):
        self.memory = mmap.mmap(-1, ranks * ENTRY.size)
        for rank in range(ranks):
            self.beat(rank, "start-up")

    def beat(self, rank, phase):
        """Note that a rank enters a phase; None: its clock is stopped."""
        name = (phase or "checkpoint").encode()
        ENTRY.pack_into(self.memory, rank * ENTRY.size, time.monotonic(), name)

    def last(self, rank):
        """(when, phase) of the last beat of a rank."""
        when, name = ENTRY.unpack_from(self.memory, rank * ENTRY.size)
        return when, name.rstrip(b"\0").decode()
