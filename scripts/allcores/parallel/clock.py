"""Seconds per phase of a rank, and what it does now, for the process that watches it."""

from __future__ import annotations

import struct
import time
from collections import defaultdict

ENTRY = struct.Struct("d24s")  # when (CLOCK_MONOTONIC, seconds), which phase


class Clock:
    """Seconds per phase of the training; at any time it runs in one phase or is stopped.

    Args:
        memory: ENTRY.size bytes, in which it notes the phase that it enters. Where they are shared,
            other processes can ask for last(). None: only this one can.
    """

    def __init__(self, memory: memoryview | None = None) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.phase: str | None = None
        self.since = 0.0
        self.memory = bytearray(ENTRY.size) if memory is None else memory
        self.beat("start-up")

    def enter(self, phase: str | None) -> None:
        self.beat(phase)
        now = time.perf_counter()
        if self.phase is not None:
            self.seconds[self.phase] += now - self.since
        self.phase, self.since = phase, now

    def stop(self) -> None:
        self.enter(None)

    def beat(self, phase: str | None) -> None:
        """Note that a phase is entered, without measuring it; None: the clock is stopped."""
        ENTRY.pack_into(self.memory, 0, time.monotonic(), (phase or "checkpoint").encode())

    def last(self) -> tuple[float, str]:
        """Return (when, phase) of what was entered last, by whichever process."""
        when, phase = ENTRY.unpack_from(self.memory)
        return when, phase.rstrip(b"\0").decode()

    def take(self) -> dict[str, float]:
        """Return the seconds per phase since the last call."""
        seconds, self.seconds = dict(self.seconds), defaultdict(float)
        return seconds
