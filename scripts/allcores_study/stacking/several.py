"""The runs of a job that trains several.

Those that can be stacked are trained together, in a process forked from this one. The others follow
one after the other, each in its own process. This process has imported what they need. A run that
fails does not affect the others, and the results do not depend on which runs share a job.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from functools import partial

from allcores.machine import lifetime
from allcores_study.records.run_files import METRICS
from allcores_study.training import progress
from allcores_study.training.progress import FAILED, TRAINED
from allcores_study.training.run_request import RunRequest


def train(
    requests: Sequence[RunRequest],
    train_one: Callable[[RunRequest], int],
    program: Callable[..., int],
) -> list[str]:
    """Train the runs of a job.

    Args:
        train_one: trains a run that is not stacked; returns 0.
        program: calls a function in a process that ends with it; returns an exit status.

    Returns:
        Paths of the runs that failed.
    """
    from pyarrow import parquet  # noqa: F401 - before forking, or each run would import it

    for request in requests:
        (request.output / METRICS).unlink(missing_ok=True)  # of an earlier run
    status, stop = _in_child(partial(program, _stack, requests))
    if status < 0:
        print(f"the process of several runs {lifetime.how_it_ended(status)}", flush=True)
    if stop:
        raise stop
    failed = []
    # Also those whose stack has failed.
    for request in [one for one in requests if not (one.output / METRICS).exists()]:
        path = request.run.path
        status, stop = _in_child(partial(program, train_one, request))
        if status == 0:  # even if a request to stop came when it had just ended
            progress.of_process.end(TRAINED, path)
        if stop:
            raise stop
        if status:
            failed.append(path)
            why = f"its process {lifetime.how_it_ended(status)}" if status < 0 else ""
            progress.of_process.end(FAILED, path, why)
            print(f"{FAILED}: {path}", flush=True)
    return failed


def _stack(requests: Sequence[RunRequest]) -> int:
    """Train what can be stacked."""
    from allcores_study.stacking import stacks

    found, others = stacks.stacks_of(requests)
    for request, why in others:
        print(f"{request.run.path} is trained alone: {why}", flush=True)
    stacks.train_stacks(found)
    return 0


def _in_child(target: Callable[[], int]) -> tuple[int, KeyboardInterrupt | None]:
    """Call target() in a process forked from this one.

    Returns:
        (its exit status, the KeyboardInterrupt that stopped this process and, through it, the other
        one; None: nothing did)
    """
    parent, child = os.getpid(), os.fork()
    if not child:
        # A group of its own, so that a terminal's signal comes once, through this process.
        os.setpgid(0, 0)
        lifetime.die_with_parent(parent)
        # The costs of its runs count from here on, not from the start of the job's program.
        os.environ.pop(lifetime.CLIENT, None)
        os._exit(target())
    try:
        return _status(child), None
    except KeyboardInterrupt as stop:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.kill(child, signal.SIGTERM)
        return _status(child), stop


def _status(child: int) -> int:
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
