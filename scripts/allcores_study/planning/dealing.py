"""Which short runs share a job: one job each would cost more than their training."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allcores_study.config.run import Conditions, Run
    from allcores_study.planning.estimate import Estimates

# A run shares a job only if it takes fewer seconds than this.
SHORT = 10.0
# Seconds that a job should take: on this machine, and as a job that is submitted to a cluster.
LOCAL, SUBMITTED = 10.0, 600.0
# Jobs of one kind take equally long, so each core gets as many, and few: the larger a stack, the
# faster. With several kinds there are more per core, so that no core is idle for long at the end.
# Each job takes at least this many seconds, because it takes most of a second to start, and SLURM
# takes some to notice a job that is submitted.
JOBS_PER_CORE, LEAST, LEAST_SUBMITTED = 4, 2.0, 30.0
# Each job gets networks of all sizes, in at most STRIPS strips of at least LEAST_IN_STRIP runs. It
# is not known beforehand how much faster a stack is, and a job of networks too large for a stack
# takes longest.
STRIPS, LEAST_IN_STRIP = 4, 8


def is_short(run: Run, seconds: float, conditions: Conditions) -> bool:
    """Return whether a Run may share a job: short, on one node, and not to be timed alone.

    Args:
        seconds: its expected duration.
        conditions: its Conditions.
    """
    return seconds < SHORT and run.nodes == 1 and not conditions.exclusive


def jobs_of(
    runs: Iterable[Run],
    estimates: Estimates,
    config: dict[str, Any],
    cores: int | None,
    most_jobs: int = 1,
) -> list[list[Run]]:
    """Return the Runs of each job that an invocation would start for Runs, most of them alone.

    Args:
        config: has `runs_per_job`, perhaps.
        cores, most_jobs: as in deal().
    """
    runs, conditions = list(runs), estimates.table.conditions
    short = [run for run in runs if is_short(run, estimates.work(run), conditions[run.path])]
    wanted = LOCAL if cores else SUBMITTED
    groups = deal(short, estimates.work, cores, wanted, most_jobs, config.get("runs_per_job"))
    shared = {run.path for group in groups if len(group) > 1 for run in group}
    return [group for group in groups if len(group) > 1] + [
        [run] for run in runs if run.path not in shared
    ]


def deal(
    runs: Iterable[Run],
    seconds_of: Callable[[Run], float],
    cores: int | None,
    wanted: float,
    jobs: int = 1,
    runs_per_job: int | None = None,
) -> list[list[Run]]:
    """Return groups of Runs that share a job, of about equal expected seconds.

    The runs of a group have one model, dataset, strategy and layout, so that they occupy equally
    many cores. Networks of the same shape are next to each other, to be stacked.

    Args:
        seconds_of: function that returns the expected seconds of a Run.
        cores: number of cores of the invocation; None: on a cluster.
        wanted: seconds that a job should take at least.
        jobs: how many jobs a cluster may have at once.
        runs_per_job: number of runs of a job; None: as many as take that long.
    """
    kinds = defaultdict(list)
    for run in runs:
        # One model per job: what another model's file imports is not part of a run's identity.
        key = run.dataset.label, run.model.name, run.strategy.label, run.layout
        kinds[key].append(run)
    work = {key: math.fsum(map(seconds_of, members)) for key, members in kinds.items()}
    groups = []
    for key, members in kinds.items():
        share, needed = work[key] / math.fsum(work.values()), work[key] / wanted
        at_once = max(1, (cores or 0) // members[0].cores_on_node) * share
        if cores and len(kinds) == 1:
            needed = at_once * max(1, round(needed / at_once))
        elif cores:
            needed = max(needed, at_once, min(JOBS_PER_CORE * at_once, work[key] / LEAST))
        else:
            needed = max(needed, min(jobs * share, work[key] / LEAST_SUBMITTED))
        count = min(len(members), max(1, math.ceil(needed)))
        if runs_per_job:
            count = math.ceil(len(members) / runs_per_job)
        members.sort(key=lambda run: (repr(run.model.options), run.path))
        if runs_per_job:
            groups += _equal_parts(members, count, lambda _: 1.0)
            continue
        longest = max(map(seconds_of, members))
        strips = min(
            STRIPS, len(members) // (count * LEAST_IN_STRIP), work[key] // (count * longest)
        )
        strips = max(1, int(strips))
        parts = _equal_parts(members, count * strips, seconds_of)
        groups += [list(itertools.chain(*parts[job::count])) for job in range(count)]
    return [group for group in groups if group]


def _equal_parts(
    members: list[Run], count: int, seconds_of: Callable[[Run], float]
) -> list[list[Run]]:
    """Cut Runs into parts of about equal expected seconds; some may be empty."""
    parts: list[list[Run]]
    parts, total = [[] for _ in range(count)], math.fsum(map(seconds_of, members))
    ended = itertools.accumulate(map(seconds_of, members))
    for run, end in zip(members, ended, strict=True):
        middle = end - seconds_of(run) / 2
        parts[int(count * middle / total)].append(run)
    return parts
