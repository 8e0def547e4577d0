"""Watch over the ranks of a run: who failed first, or who keeps the others waiting?"""

import signal
import time
from multiprocessing import connection
from pathlib import Path

from allcores.parallel.failures import DivergedError, RankFailedError

# How often the parent looks for progress (seconds).
LOOK = 1.0
# Phases in which a rank waits for others: the rank that hangs is likely in another phase.
WAITING = ("wait", "checkpoint")
# When one rank dies, the others' complaints about it arrive within this time (seconds).
GRACE = 0.5


def watch(ranks, workers, heartbeats, timeout):
    """Wait until every rank of a run has ended well.

    Args:
        ranks: rank -> (process, pipe on which it reports why it failed).
        workers: how many of them train; the others serve.
        heartbeats: the ranks' heartbeat.Heartbeats.
        timeout: seconds without any progress of any rank after which the run is given up.

    Raises:
        RankFailedError: a rank raised, was killed or hangs.
        DivergedError: a rank found that the training diverged.
    """
    running = {process.sentinel: rank for rank, (process, _) in ranks.items()}
    idle, before = 0.0, None
    while running:
        ended = [running.pop(sentinel) for sentinel in connection.wait(list(running), LOOK)]
        if any(_exit_code(ranks[rank]) != 0 for rank in ended):
            time.sleep(GRACE)
            raise _failure(ranks, workers)
        # Counts checks, not seconds: the time for which this process itself is stopped is no idle.
        beats = heartbeats.snapshot()
        idle = 0.0 if ended or beats != before else idle + LOOK
        before = beats
        if running and idle >= timeout:
            raise RankFailedError(
                _who_hangs(ranks, workers, heartbeats, list(running.values()), idle)
            )


def _exit_code(rank):
    process, _ = rank
    process.join()
    return process.exitcode


def _failure(ranks, workers):
    """The error that says which rank failed first, and how.

    A killed rank sends nothing; the others then complain about their lost connection. So a signal
    outweighs a traceback, and of several tracebacks the earliest tells the cause.
    """
    causes = {}
    for rank, (process, report) in ranks.items():
        if process.exitcode is not None and process.exitcode < 0:
            name = signal.Signals(-process.exitcode).name
            return RankFailedError(
                f"{_title(rank, workers)} (process {process.pid}) was killed by {name}"
            )
        try:
            if report.poll():
                causes[rank] = report.recv()
        except EOFError:  # it closed its end without a word
            if process.exitcode:
                causes[rank] = (0.0, f"exited with status {process.exitcode}")
    diverged = [cause for _, cause in causes.values() if isinstance(cause, DivergedError)]
    if diverged:
        return diverged[0]
    rank = min(causes, key=lambda rank: causes[rank][0])
    return RankFailedError(f"{_title(rank, workers)} failed:\n{causes[rank][1]}")


def _who_hangs(ranks, workers, heartbeats, running, seconds):
    """Which rank keeps the others waiting: a stopped one, or the first that fell silent at work."""

    def suspicion(rank):
        when, phase = heartbeats.last(rank)
        return not _is_stopped(ranks[rank][0].pid), phase in WAITING, when

    rank = min(running, key=suspicion)
    process, (_, phase) = ranks[rank][0], heartbeats.last(rank)
    how = "is stopped by a signal" if _is_stopped(process.pid) else "hangs"
    return (
        f"no rank made any progress for {seconds:g} s: {_title(rank, workers)} "
        f"(process {process.pid}) {how}, in the phase {phase}"
    )


def _is_stopped(pid):
    """Whether a process has been stopped, by SIGSTOP, say (proc_pid_stat(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def _title(rank, workers):
    return f"worker {rank} (rank {rank})" if rank < workers else f"server (rank {rank})"
