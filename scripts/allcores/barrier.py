"""A barrier for the processes of one machine."""

import mmap
import os
import time
from multiprocessing import get_context

SLICE = 1.0  # seconds


class Barrier:
    """Lets nobody pass before all have come; as often as one likes.

    The dissemination barrier of Hensgen, Finkel and Manber 1988, "Two algorithms for barrier
    synchronization": ceil(log2 n) rounds; in round k each rank signals the one 2^k places on and
    waits for the one 2^k places back. After the last round everybody has heard from everybody,
    directly or through others.

    A signal is a POSIX semaphore. What was written before it was posted is seen after it has been
    acquired, on weakly ordered processors, too. Its name is gone before the constructor returns,
    and nobody who dies can leave it locked.

    Made before the processes are forked.

    Args:
        parties: number of processes, ranks 0 .. parties - 1.
        spin: seconds to watch for a signal, with the core on offer to others, before falling
            asleep: waking up takes longer than most waits last. 0 where processes share cores.
        patience: seconds after which a barrier is given up.
    """

    def __init__(self, parties, spin, patience):
        self.parties, self.spin, self.patience = parties, spin, patience
        self.distances = [1 << k for k in range((parties - 1).bit_length())]
        make = get_context("fork").Semaphore
        self.signals = [[make(0) for _ in range(parties)] for _ in self.distances]
        # How often each rank has come, to say who is missing.
        self.arrivals = memoryview(mmap.mmap(-1, 8 * parties)).cast("q")

    def wait(self, rank):
        """Come as that rank and wait for the others.

        Raises:
            TimeoutError: some did not come; the message says who.
        """
        self.arrivals[rank] += 1
        for distance, signals in zip(self.distances, self.signals, strict=True):
            signals[(rank + distance) % self.parties].release()
            if not (self._watch(signals[rank]) or self._sleep(signals[rank])):
                came = self.arrivals[rank]
                missing = [str(r) for r in range(self.parties) if self.arrivals[r] < came]
                raise TimeoutError(
                    f"waited {self.patience} s for rank {', '.join(missing)}, which did not come"
                )

    def _watch(self, signal):
        end = time.monotonic() + self.spin
        while not signal.acquire(block=False):
            if time.monotonic() > end:
                return False
            os.sched_yield()
        return True

    def _sleep(self, signal):
        # In slices, because the deadline of a semaphore is one of the wall clock: a laptop that
        # was closed for a night would wake up with all deadlines missed.
        return any(signal.acquire(timeout=SLICE) for _ in range(round(self.patience / SLICE)))
