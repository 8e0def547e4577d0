"""Predict when jobs end that Snakemake's greedy scheduler packs onto cores and memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class QueuedJob:
    """A job to be started.

    Attributes:
        cores, memory: what it claims; that of an exclusive run claims all cores.
        seconds: from its start to its end.
        after: seconds after that until its cores are free.
    """

    cores: int
    memory: float
    seconds: float
    after: float = 0.0


def pack(
    jobs: Iterable[QueuedJob], cores: int, memory: float = float("inf")
) -> tuple[float, float]:
    """Start each QueuedJob, in the given order, as soon as there is room; later ones fill in.

    Args:
        jobs: in order of priority, the highest first.
        cores, memory: of the machine; a job that claims more gets all of it.

    Returns:
        (seconds until the last job has ended, the most memory that is claimed at the same time)
    """
    waiting = list(jobs)
    running = []  # (when its cores are free, the cores and the memory that it has, what it claims)
    now = makespan = peak = 0.0
    free_cores, free_memory = cores, memory
    while waiting:
        still_waiting = []
        for place, job in enumerate(waiting):
            if not free_cores:
                still_waiting += waiting[place:]
                break
            claims = min(job.cores, cores), min(job.memory, memory)
            if claims[0] <= free_cores and claims[1] <= free_memory:
                free_cores, free_memory = free_cores - claims[0], free_memory - claims[1]
                running.append((now + job.seconds + job.after, *claims, job.memory))
                makespan = max(makespan, now + job.seconds)
            else:
                still_waiting.append(job)
        waiting = still_waiting
        peak = max(peak, sum(claimed for *_, claimed in running))
        now = min(end for end, *_ in running)
        for run in [run for run in running if run[0] == now]:
            running.remove(run)
            free_cores, free_memory = free_cores + run[1], free_memory + run[2]
    return makespan, peak
