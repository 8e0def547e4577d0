"""A barrier for the processes of one machine."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

LOOK = 0.1  # seconds between two checks whether those that are awaited still live


class LostRankError(RuntimeError):
    """Another rank of a group has ended or did not arrive in time."""


class Barrier:
    """A rank's side of a reusable barrier: nobody passes before all have arrived.

    This is the dissemination barrier of Hensgen, Finkel and Manber 1988, "Two algorithms for
    barrier synchronization". It has ceil(log2 n) rounds; in round k each rank signals the one 2^k
    places ahead and waits for the one 2^k places behind. After the last round every rank has heard
    from every other, directly or through others.

    A signal is an eventfd(2). What was written before it was raised is visible after it has been
    read, also on weakly ordered processors. It has no name, needs no room in /dev/shm, and cannot
    be left locked by a process that dies.

    Args:
        ranks: the names of all ranks, in messages.
        place: position of this one among them.
        signals: see of_rank().
        arrivals: a number per rank in memory that all share: how often it has called wait(), to
            name those that are missing.
        spin: seconds to poll for a signal, yielding the core to others, before sleeping: waking up
            takes longer than most waits last. 0 where processes share cores.
        timeout: seconds after which wait() raises an error.
        watch: function of the places that are waited for, called while sleeping. It returns why
            they will never arrive, or None.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        place: int,
        signals: Sequence[int],
        arrivals: Any,
        spin: float,
        timeout: float,
        watch: Callable[[set[int]], str | None] = lambda places: None,
    ) -> None:
        self.ranks, self.place, self.arrivals = ranks, place, arrivals
        self.spin, self.timeout, self.watch = spin, timeout, watch
        # Of each round: the signal that is raised, the one that is awaited, and who raises that.
        senders = [(place - distance) % len(ranks) for distance in distances(len(ranks))]
        self.rounds = list(zip(signals[::2], signals[1::2], senders, strict=True))

    def wait(self) -> None:
        """Arrive and wait for the others.

        Raises:
            LostRankError: some ranks did not arrive in time, or never will; the message names them.
        """
        self.arrivals[self.place] += 1
        for raised, awaited, sender in self.rounds:
            os.eventfd_write(raised, 1)
            if not self._poll(awaited):
                self._sleep(awaited, sender)

    def _poll(self, signal: int) -> bool:
        end = time.monotonic() + self.spin
        while not _take(signal):
            if time.monotonic() > end:
                return False
            os.sched_yield()
        return True

    def _sleep(self, signal: int, sender: int) -> None:
        end = time.monotonic() + self.timeout
        poll = select.poll()
        poll.register(signal, select.POLLIN)
        while not poll.poll(1000 * min(LOOK, self.timeout)):
            count = self.arrivals[self.place]
            missing = {other for other, times in enumerate(self.arrivals) if times < count}
            problem = self.watch(missing | {sender})
            if not problem and time.monotonic() > end:
                late = self.names(missing)
                problem = f"rank {late} did not arrive within {self.timeout:g} s (timeout)"
            if problem and not poll.poll(0):  # it may have arrived since
                raise LostRankError(problem)
        os.eventfd_read(signal)

    def names(self, places: set[int]) -> str:
        """Return the names of the ranks at these places."""
        return ", ".join(str(self.ranks[place]) for place in sorted(places))


def distances(parties: int) -> list[int]:
    """Return, for each round of a barrier, how many places ahead each rank signals."""
    return [1 << k for k in range((parties - 1).bit_length())]


def signals(parties: int) -> list[list[int]]:
    """Open the signals of a barrier, before its processes are forked: those of each round."""
    flags = os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC
    return [[os.eventfd(0, flags) for _ in range(parties)] for _ in distances(parties)]


def of_rank(signals: Sequence[Sequence[int]], place: int) -> list[int]:
    """Return the signals that the rank at a place raises and awaits, in turn."""
    return [
        signal
        for k, of_round in enumerate(signals)
        for signal in (of_round[(place + (1 << k)) % len(of_round)], of_round[place])
    ]


def _take(signal: int) -> bool:
    """Take a signal back, and return whether it had been raised."""
    try:
        os.eventfd_read(signal)
    except BlockingIOError:
        return False
    return True
