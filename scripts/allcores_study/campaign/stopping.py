"""How an invocation is told to stop: by Ctrl-C, by SIGTERM, by a closed terminal."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import TYPE_CHECKING

from allcores_study.campaign import snakemake_internals as internals

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from snakemake.workflow import Workflow


def exit_by_interrupt() -> None:
    """Make SIGINT and SIGHUP end this process without a traceback or a remaining lock.

    This holds until jobs run.
    """
    for number in (signal.SIGINT, *_unless_ignored(signal.SIGHUP)):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))


def finish_by_signals(
    workflow: Workflow,
    notice: Callable[[], object],
    tell: Callable[[str], object],
    cancel_pending: Callable[[], object] | None = None,
) -> None:
    """Make SIGTERM, SIGINT and SIGHUP let running jobs end and start no other.

    A terminal also sends Ctrl-C, and SIGHUP when it is closed, to the jobs: they save and stop.
    Jobs on a cluster get no signal, so SIGINT, or a second signal, cancels them.

    Snakemake's handlers may hang: the one for SIGTERM takes a lock that the interrupted main thread
    may hold, and a KeyboardInterrupt may leave a lock held for good. So a thread does the work; it
    gets the signals from a queue whose put() is reentrant.

    Args:
        workflow: Snakemake's.
        notice: called at once when such a signal comes.
        tell: logs a text; called by a thread.
        cancel_pending: cancels the jobs that a cluster has not begun; None if there is no cluster.
    """
    numbers: queue.SimpleQueue[int] = queue.SimpleQueue()

    def end() -> None:
        while True:
            number = numbers.get()
            is_again = internals.is_told_to_finish(workflow)
            if cancel_pending and (number == signal.SIGINT or is_again):
                tell("Stopping: cancelling the jobs that SLURM has")
                internals.leave_running_jobs(workflow)
            elif cancel_pending:
                tell("Stopping: waiting for running jobs, starting no others; Ctrl-C cancels them")
                internals.finish_running_jobs(workflow)
                cancel_pending()
            else:
                how = "end" if number == signal.SIGTERM else "save and end"
                tell(f"Stopping: running jobs {how}, no others start")
                internals.finish_running_jobs(workflow)

    def handle(number: int, frame: FrameType | None) -> None:
        notice()
        if number == signal.SIGHUP and os.getsid(0) == os.getpid():
            # When a terminal is closed, only the leader of its session gets the signal.
            signal.signal(number, signal.SIG_IGN)
            os.killpg(0, number)
        numbers.put(number)

    threading.Thread(target=end, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM, *_unless_ignored(signal.SIGHUP)):
        signal.signal(number, handle)


def _unless_ignored(number: int) -> list[int]:
    """Return [a signal], or [] if it is ignored, as under nohup."""
    return [] if signal.getsignal(number) == signal.SIG_IGN else [number]
