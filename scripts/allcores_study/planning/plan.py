"""How long a study will take: its runs, dealt to jobs and packed onto cores as in an invocation."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allcores.machine.costs import core_time, duration
from allcores_study.planning import dealing, packing
from allcores_study.planning.packing import QueuedJob

if TYPE_CHECKING:
    from allcores_study.config.run import Run
    from allcores_study.planning.estimate import Estimates

# Seconds from when a job's cores are free until Snakemake has started the next one on them.
GAP = 0.02


@dataclass(frozen=True)
class Plan:
    """What a study is expected to take.

    Attributes:
        runs: how many it has.
        seconds: until the last one has ended, if it is run alone.
        core_seconds: that its jobs claim.
        memory_mb: the most that its jobs claim at the same time.
        at_once: cores that all runs of its largest round take together.
    """

    study: str
    runs: int
    seconds: float
    core_seconds: float
    memory_mb: float
    at_once: int

    def lines(self, cores: int) -> Iterator[str]:
        """Yield a line on what it takes, and a hint if most cores would be idle.

        Args:
            cores: number of cores that it was planned for.
        """
        yield (
            f"{self.study}: {self.runs:,} runs, {duration(self.seconds)} on {cores} "
            f"core{'s' if cores > 1 else ''} ({core_time(self.core_seconds)}), "
            f"{self.memory_mb:,.0f} MB of memory claimed"
        )
        if (factor := cores // self.at_once) > 1:
            yield (
                f"    {cores - self.at_once} of {cores} cores stay idle; runs of {factor} times as "
                "many workers or threads would use them"
            )


def of_runs(
    name: str,
    paths: Collection[str],
    estimates: Estimates,
    config: dict[str, Any],
    cores: int,
    memory_mb: float,
) -> Plan:
    """Return the Plan of runs.

    Args:
        name: of their study.
        paths: theirs.
        config: has `runs_per_job`, perhaps.
        cores, memory_mb: that the jobs share.
    """
    table = estimates.table
    # A chosen run begins when the inner runs have ended.
    rounds = [
        [estimates.run_at(path) for path in paths if (path in table.selections) == is_chosen]
        for is_chosen in (False, True)
    ]
    seconds = core_seconds = peak_mb = 0.0
    for runs in filter(None, rounds):
        jobs = list(_queued(dealing.jobs_of(runs, estimates, config, cores), estimates, cores))
        of_round, mb = packing.pack(jobs, cores, memory_mb)
        seconds, peak_mb = seconds + of_round, max(peak_mb, mb)
        core_seconds += math.fsum(job.cores * job.seconds for job in jobs)
    is_alone = any(table.conditions[path].exclusive for path in paths)
    at_once = cores if is_alone else max(sum(run.cores for run in runs) for runs in rounds)
    return Plan(name, len(paths), seconds, core_seconds, peak_mb, at_once)


def _queued(jobs: Iterable[list[Run]], estimates: Estimates, cores: int) -> Iterator[QueuedJob]:
    """Yield jobs in the order in which Snakemake starts them: exclusive ones, then the longest."""
    conditions = estimates.table.conditions

    def seconds(job: list[Run]) -> float:
        return estimates.start_up + math.fsum(map(estimates.work, job))

    def is_exclusive(job: list[Run]) -> bool:
        return conditions[job[0].path].exclusive

    for job in sorted(jobs, key=lambda job: (not is_exclusive(job), -seconds(job))):
        claimed = cores if is_exclusive(job) else job[0].cores
        yield QueuedJob(claimed, max(map(estimates.memory_mb, job)), seconds(job), GAP)


def lines(
    estimates: Estimates, config: dict[str, Any], cores: int, memory_mb: float
) -> Iterator[str]:
    """Yield lines on each study of a table, and on all of them; see of_runs()."""
    table, given = estimates.table, (estimates, config, cores, memory_mb)
    for study in table.studies:
        yield from of_runs(study, table.paths_of(study), *given).lines(cores)
    if len(table.studies) > 1:
        yield next(of_runs("all together", table.runs, *given).lines(cores))
