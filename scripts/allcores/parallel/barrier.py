"""A barrier for the processes of one machine."""

from __future__ import annotations

import mmap
import os
import select
import time
from itertools import chain


class Barrier:
    """A reusable barrier: nobody passes before all have arrived.

    This is the dissemination barrier of Hensgen, Finkel and Manber 1988, "Two algorithms for
    barrier synchronization". It has ceil(log2 n) rounds; in round k each rank signals the one 2^k
    places ahead and waits for the one 2^k places behind. After the last round every rank has heard
    from every other, directly or through others.

    A signal is an eventfd(2). What was written before it was raised is visible after it has been
    read, also on weakly ordered processors. It has no name, needs no room in /dev/shm, and cannot
    be left locked by a process that dies.

    Create it before forking the processes.

    Args:
        parties: number of processes, ranks 0 .. parties - 1.
        spin: seconds to poll for a signal, yielding the core to others, before sleeping: waking up
            takes longer than most waits last. 0 where processes share cores.
        timeout: seconds after which wait() raises an error.
    """

    def __init__(self, parties: int, spin: float, timeout: float) -> None:
        self.parties, self.spin, self.timeout = parties, spin, timeout
        self.distances = [1 << k for k in range((parties - 1).bit_length())]
        flags = os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC
        self.signals = [[os.eventfd(0, flags) for _ in range(parties)] for _ in self.distances]
        # How often each rank has called wait(), to name those that are missing.
        self.arrivals = memoryview(mmap.mmap(-1, 8 * parties)).cast("q")

    def wait(self, rank: int) -> None:
        """Arrive as `rank` and wait for the others.

        Raises:
            TimeoutError: some ranks did not arrive in time; the message names them.
        """
        self.arrivals[rank] += 1
        for distance, signals in zip(self.distances, self.signals, strict=True):
            os.eventfd_write(signals[(rank + distance) % self.parties], 1)
            if not (self._poll(signals[rank]) or self._sleep(signals[rank])):
                count = self.arrivals[rank]
                others = range(self.parties)
                missing = [str(other) for other in others if self.arrivals[other] < count]
                raise TimeoutError(
                    f"rank {', '.join(missing)} did not reach the barrier within {self.timeout} s"
                )

    def _poll(self, signal: int) -> bool:
        end = time.monotonic() + self.spin
        while not _take(signal):
            if time.monotonic() > end:
                return False
            os.sched_yield()
        return True

    def _sleep(self, signal: int) -> bool:
        poll = select.poll()
        poll.register(signal, select.POLLIN)
        return bool(poll.poll(1000 * self.timeout)) and _take(signal)

    def close(self) -> None:
        """Close the eventfds."""
        for signal in chain(*self.signals):
            os.close(signal)


def _take(signal: int) -> bool:
    """Take a signal back, and return whether it had been raised."""
    try:
        os.eventfd_read(signal)
    except BlockingIOError:
        return False
    return True
