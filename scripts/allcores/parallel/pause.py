"""A common step after which all workers save, agreed on while they train.

The processes that watch the workers ask for a pause when a checkpoint is due, and before a run is
stopped. Workers of asynchronous strategies are then at different steps. So each worker that ends a
step waits until it is known how far the furthest has come, and all continue to the step after that.
While no pause is asked for, a step costs a worker writing one number and reading one.
"""

from __future__ import annotations

import mmap
import time

# Places in the memory: how often a pause was asked for, and how often answered with a step; that
# step; whether the run stops there; when a checkpoint was last written (CLOCK_MONOTONIC, ns).
ASKED, ANSWERED, STEP, STOP, SAVED, WORKERS = range(6)
POLL = 1e-3  # seconds


class Pause:
    """Messages between the workers of one node and the process that watches them.

    Create it before forking the workers, which share its memory.

    Args:
        workers: number of workers on this node; each is known by its rank there.
    """

    def __init__(self, workers: int) -> None:
        self.memory = memoryview(mmap.mmap(-1, 8 * (WORKERS + 2 * workers))).cast("q")
        # Per worker: number of steps that it has ended, and of pauses that it has been through.
        self.ended = self.memory[WORKERS : WORKERS + workers]
        self.passed = self.memory[WORKERS + workers :]
        self.saved()

    def due(self, rank: int, step: int) -> bool:
        """Return whether to save now, as all others will. A worker asks after each step.

        Args:
            rank: among the workers of this node.
            step: number of steps that it has ended since the run began.
        """
        self.ended[rank] = step
        request = self.memory[ASKED]
        if self.passed[rank] == request:
            return False
        while self.memory[ANSWERED] != request:
            time.sleep(POLL)
        return step >= self.memory[STEP]  # later, if none had ended a step when asked

    def over(self, rank: int) -> bool:
        """Return whether to stop. A worker asks when all have saved."""
        stop = bool(self.memory[STOP])
        # Once all have been through this one, another may be asked for.
        self.passed[rank] = self.memory[ASKED]
        return stop

    def saved(self) -> None:
        """Note that a checkpoint has been written."""
        self.memory[SAVED] = time.monotonic_ns()

    @property
    def age(self) -> float:
        """Seconds since the last checkpoint."""
        return (time.monotonic_ns() - self.memory[SAVED]) / 1e9

    @property
    def is_going_on(self) -> bool:
        return any(passed != self.memory[ASKED] for passed in self.passed)

    def ask(self, stop: bool) -> int:
        """Ask for a pause, and return the first step after which it is possible.

        A worker writes its step before it reads whether a pause is asked for. So a worker whose
        step is read here may continue without having seen the request, but will see it after the
        next step.
        """
        self.memory[STOP] = stop
        self.memory[ASKED] += 1
        time.sleep(POLL)  # a processor may read before what it has written is seen by others
        return max(self.ended) + 1

    def answer(self, step: int) -> None:
        """Let all workers continue until they have ended that step."""
        self.memory[STEP] = step
        self.memory[ANSWERED] = self.memory[ASKED]
