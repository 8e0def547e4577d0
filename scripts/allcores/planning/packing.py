"""How Snakemake's greedy scheduler packs runs onto cores and memory, simulated. No torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """A run that waits.

    Attributes:
        name: what the caller knows it by.
        cores, memory: that it claims; of an exclusive run all cores.
        prediction: prediction.Prediction.
    """

    name: object
    cores: int
    memory: float
    prediction: object


@dataclass(frozen=True)
class Packed:
    """What a simulation ends with.

    Attributes:
        makespan: seconds until the last run has ended.
        times: name -> (start, end) in seconds since the start.
        training: name -> seconds of training, among the neighbours that it had.
        peak_memory: bytes of the runs that are at work at once, at most.
    """

    makespan: float
    times: dict
    training: dict
    peak_memory: int


class _Going:
    """A Job at work: when it was started, the share of it that is left, and of cores beside it."""

    def __init__(self, job, start):
        self.job, self.start, self.left, self.crowded = job, start, 1.0, 0.0


def simulate(jobs, cores, memory=float("inf"), gap=0.0):
    """Start each Job, in the given order, as soon as there is room; later ones fill in.

    A run slows down its neighbours in proportion to the cores that it keeps busy.

    Args:
        jobs: by falling priority.
        cores, memory: of the machine; a job that claims more gets all.
        gap: seconds from when a run's cores are free until they have the next one.
    """
    waiting, going, times, training = list(jobs), [], {}, {}
    now, peak, free, room = 0.0, 0, cores, memory

    def needs(job):
        return min(job.cores, cores), min(job.memory, memory)

    def after(job):
        return job.prediction.end + gap

    while waiting or going:
        left = []
        for position, job in enumerate(waiting):
            if not free:
                left += waiting[position:]
                break
            claims = needs(job)
            if claims[0] <= free and claims[1] <= room:
                free, room = free - claims[0], room - claims[1]
                going.append(_Going(job, now))
            else:
                left.append(job)
        waiting = left
        peak = max(peak, sum(one.job.prediction.memory for one in going))

        busy = cores - free
        lasting = [
            one.job.prediction.seconds_among(_crowd(one.job, busy, cores)) + after(one.job)
            for one in going
        ]
        passed = min(one.left * seconds for one, seconds in zip(going, lasting, strict=True))
        now += passed
        for one, seconds in zip(going, lasting, strict=True):
            one.left -= passed / seconds
            one.crowded += passed / seconds * _crowd(one.job, busy, cores)
        for one in [one for one in going if one.left < 1e-9]:
            going.remove(one)
            claims = needs(one.job)
            free, room = free + claims[0], room + claims[1]
            times[one.job.name] = one.start, now - after(one.job)
            training[one.job.name] = one.job.prediction.training_among(one.crowded)
    return Packed(max((end for _, end in times.values()), default=0.0), times, training, peak)


def _crowd(job, busy, cores):
    """The share of the cores beside a job's own that other runs keep busy."""
    rest = cores - min(job.cores, cores)
    return (busy - min(job.cores, cores)) / rest if rest else 0.0
