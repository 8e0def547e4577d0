"""When runs will have ended that Snakemake's greedy scheduler packs onto cores and memory.

No torch.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class QueuedRun:
    """A run to be started.

    Attributes:
        cores, memory: what it claims; an exclusive run claims all cores.
        seconds: from its start to its end.
        after: seconds after that until its cores are free.
    """

    cores: int
    memory: float
    seconds: float
    after: float = 0.0


def pack(jobs, cores, memory=float("inf")):
    """Start each QueuedRun, in the given order, as soon as there is room; later ones fill in.

    Args:
        jobs: in order of priority, the highest first.
        cores, memory: of the machine; a job that claims more gets all of it.

    Returns:
        (seconds until the last run has ended, the most memory that is claimed at the same time)
    """
    waiting, running = list(jobs), []  # of running: (when its cores are free, cores, memory)
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
                running.append((now + job.seconds + job.after, *claims))
                makespan = max(makespan, now + job.seconds)
            else:
                still_waiting.append(job)
        waiting = still_waiting
        peak = max(peak, sum(claimed for _, _, claimed in running))
        ended = min(running)
        running.remove(ended)
        now, free_cores, free_memory = ended[0], free_cores + ended[1], free_memory + ended[2]
    return makespan, peak
