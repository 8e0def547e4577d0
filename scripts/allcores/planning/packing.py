"""Simulate how Snakemake's greedy scheduler packs runs onto cores and memory. No torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class QueuedRun:
    """A run to be started.

    Attributes:
        name: any name by which the caller knows it.
        cores, memory: what it claims; an exclusive run claims all cores.
        prediction: prediction.Prediction.
    """

    name: object
    cores: int
    memory: float
    prediction: object


@dataclass(frozen=True)
class Packed:
    """The result of a simulation.

    Attributes:
        makespan: seconds until the last run has ended.
        times: name -> (start, end) in seconds since the start.
        training: name -> seconds of training, slowed down by the neighbours that it had.
        peak_memory: most bytes that runs take at the same time.
    """

    makespan: float
    times: dict
    training: dict
    peak_memory: int


class _Running:
    """A QueuedRun at work: its start, its remaining share, and how busy the other cores were."""

    def __init__(self, job, start):
        self.job, self.start, self.remaining, self.crowding = job, start, 1.0, 0.0


def simulate(jobs, cores, memory=float("inf"), gap=0.0):
    """Start each QueuedRun, in the given order, as soon as there is room; later ones fill in.

    A run slows down its neighbours in proportion to the cores that it keeps busy.

    Args:
        jobs: in order of priority, the highest first.
        cores, memory: of the machine; a job that claims more gets all of it.
        gap: seconds from when cores become free until the next run starts on them.
    """
    waiting, running, times, training = list(jobs), [], {}, {}
    now, peak, free_cores, free_memory = 0.0, 0, cores, memory

    def claims(job):
        return min(job.cores, cores), min(job.memory, memory)

    def time_after(job):
        return job.prediction.end + gap

    while waiting or running:
        still_waiting = []
        for position, job in enumerate(waiting):
            if not free_cores:
                still_waiting += waiting[position:]
                break
            job_cores, job_memory = claims(job)
            if job_cores <= free_cores and job_memory <= free_memory:
                free_cores, free_memory = free_cores - job_cores, free_memory - job_memory
                running.append(_Running(job, now))
            else:
                still_waiting.append(job)
        waiting = still_waiting
        peak = max(peak, sum(run.job.prediction.memory for run in running))

        busy = cores - free_cores
        durations = [
            run.job.prediction.seconds_among(_crowd(run.job, busy, cores)) + time_after(run.job)
            for run in running
        ]
        # Until the next run ends.
        passed = min(
            run.remaining * seconds for run, seconds in zip(running, durations, strict=True)
        )
        now += passed
        for run, seconds in zip(running, durations, strict=True):
            run.remaining -= passed / seconds
            run.crowding += passed / seconds * _crowd(run.job, busy, cores)
        for run in [run for run in running if run.remaining < 1e-9]:
            running.remove(run)
            job_cores, job_memory = claims(run.job)
            free_cores, free_memory = free_cores + job_cores, free_memory + job_memory
            times[run.job.name] = run.start, now - time_after(run.job)
            training[run.job.name] = run.job.prediction.training_among(run.crowding)
    return Packed(max((end for _, end in times.values()), default=0.0), times, training, peak)


def _crowd(job, busy, cores):
    """The share of the cores outside a job that other runs keep busy."""
    others = cores - min(job.cores, cores)
    return (busy - min(job.cores, cores)) / others if others else 0.0
