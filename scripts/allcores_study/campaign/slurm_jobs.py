"""The jobs submitted to SLURM: what prevents their submission, and how each has ended."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from snakemake.exceptions import WorkflowError

from allcores_study.campaign import snakemake_internals as internals
from allcores_study.watching import slurm
from allcores_study.watching.closing import stop_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from logging import Logger

    from snakemake.jobs import Job
    from snakemake.workflow import Workflow
    from snakemake_executor_plugin_allcores_slurm import Executor
    from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

# A job that SLURM does not know at this many looks is judged by its results.
LOOKS = 2
DONE = "(100%) done"  # what the snakemake in a job prints last
MORE, MOST = 10, 60  # seconds by which the pause grows while no job ends; the longest pause


def take_over(
    workflow: Workflow,
    jobs: list[Job],
    logs: str,
    logger: Logger,
    has_results: Callable[[Job], bool],
) -> None:
    """Submit jobs and watch them in a way that survives outages, limits and SLURM's short memory.

    This comes before the first job, and ends the invocation if jobs cannot be submitted.

    Args:
        jobs: those that will be submitted.
        logs: the folder for the files that SLURM writes.
        logger: Snakemake's.
        has_results: see Watch.
    """
    stop_at(list(slurm.unusable()), "Jobs cannot be submitted from here")
    executor = internals.executor(workflow)
    if not hasattr(executor, "follow"):
        stop_at(["executor: found slurm; expected allcores-slurm, as in profiles/slurm"])
    watch = Watch(logger, executor.first_pause, has_results)
    executor.follow(logs, watch, Submission(workflow, logger))
    earlier = list(slurm.still_there(jobs, logs))
    stop_at(earlier, "SLURM still has jobs of an earlier invocation")


def cancel(workflow: Workflow) -> None:
    """Cancel the jobs that SLURM has; if it does not answer, print which it may still have.

    Snakemake itself overlooks jobs whose state it is just asking for.
    """
    executor = internals.executor(workflow)
    try:
        executor.cancel_jobs(executor.active_jobs)
    except WorkflowError:
        numbers = " ".join(_numbers(executor))
        print(
            f"SLURM does not answer and may still have jobs; run scancel {numbers}", file=sys.stderr
        )


def cancel_pending(workflow: Workflow) -> None:
    """Cancel those of an invocation's jobs that SLURM has not begun."""
    if numbers := _numbers(internals.executor(workflow)):
        slurm.cancel_pending(numbers)


def _numbers(executor: Executor) -> list[str]:
    """Return the numbers, as texts, that SLURM gave to the jobs that have not ended."""
    return [job.external_jobid for job in executor.active_jobs]


class Submission:
    """What the executor asks if a job is not submitted; reports each new reason why jobs wait.

    Args:
        workflow: Snakemake's.
        logger: Snakemake's.
    """

    is_transient = staticmethod(slurm.is_transient)

    def __init__(self, workflow: Workflow, logger: Logger) -> None:
        self.workflow, self.logger = workflow, logger
        self.told: str | None = None

    def is_told_to_end(self) -> bool:
        is_finishing = internals.is_told_to_finish(self.workflow)
        return is_finishing or internals.is_told_to_leave(self.workflow)

    def tell(self, text: str) -> None:
        """Report what sbatch printed, unless it was the same the last time."""
        reason = text.strip().splitlines()[-1] if text.strip() else "no reason was given"
        if reason != self.told:
            self.told = reason
            self.logger.warning(f"SLURM accepts no more jobs for now; they wait: {reason}")


class Watch:
    """A function for the executor's follow() that looks at the jobs of an invocation.

    A job that SLURM does not know any more has ended: squeue forgets jobs after MinJobAge, perhaps
    while this process was suspended. Such a job, and one that ended badly according to SLURM, is
    judged by its results, then by its log.

    Args:
        logger: Snakemake's.
        pause: seconds between two looks at first.
        has_results: returns whether the results of a job of Snakemake exist and are right.
    """

    def __init__(self, logger: Logger, pause: float, has_results: Callable[[Job], bool]) -> None:
        self.logger, self.pause, self.has_results = logger, pause, has_results
        self.answers = True
        self.reasons: set[str] = set()  # why jobs were pending at the last report
        self.longest = max(1, min(MOST, slurm.seconds_remembered() // 3))
        self.unknown: dict[str, int] = {}  # number of a job -> looks at which SLURM did not know it

    async def __call__(
        self, executor: Executor, jobs: Sequence[SubmittedJobInfo]
    ) -> AsyncIterator[SubmittedJobInfo]:
        """Yield those of the executor's jobs that have not ended, and report the others."""
        async with executor.status_rate_limiter:
            states = slurm.all_states() if jobs else {}
        if (states is not None) != self.answers:
            self.answers = states is not None
            self.logger.warning(
                "SLURM answers again" if self.answers else "SLURM does not answer; asking again"
            )
        self._tell_reasons(jobs, states or {})
        have_ended = False
        for job in jobs:
            if self._has_ended(executor, job, states):
                have_ended = True
            else:
                yield job
        pause = self.pause if have_ended else executor.next_seconds_between_status_checks + MORE
        executor.next_seconds_between_status_checks = min(pause, self.longest)

    def _tell_reasons(
        self, jobs: Sequence[SubmittedJobInfo], states: dict[str, tuple[str, str]]
    ) -> None:
        """Report why jobs are pending, each time the reasons change."""
        found = [_state(job, states) for job in jobs]
        counts = Counter(reason for state, reason in found if state == "PENDING")
        del counts["None"]  # SLURM has not looked at it yet
        if counts.keys() - self.reasons:
            listed = ", ".join(f"{count} for {reason}" for reason, count in counts.items())
            self.logger.warning(f"Jobs pending in SLURM: {listed}")
        self.reasons = set(counts)

    def _has_ended(
        self, executor: Executor, job: SubmittedJobInfo, states: dict[str, tuple[str, str]] | None
    ) -> bool:
        """Return whether a job has ended; if so, it is reported.

        Args:
            states: from slurm.all_states().
        """
        if states is None:
            return False
        number, log = job.external_jobid, job.aux.get("slurm_logfile")
        state, _ = _state(job, states)
        self.unknown[number] = 0 if state else self.unknown.get(number, 0) + 1
        is_forgotten = self.unknown[number] == LOOKS
        # SLURM may end a job, as at its time limit, after its runs have ended: their results count.
        if (is_forgotten or state in slurm.ENDED_BADLY) and self._has_ended_well(job):
            state = "COMPLETED"
        if state == "COMPLETED":
            executor.report_job_success(job)
            with contextlib.suppress(OSError):
                log.unlink()
                log.parent.rmdir()
                log.parent.parent.rmdir()
        elif is_forgotten or state in slurm.ENDED_BADLY:
            state = state or "forgotten by SLURM"
            text = f"SLURM's job {number} ended with the state {state}{_said(log)}. "
            executor.report_job_error(job, msg=text, aux_logs=[str(log)])
        else:
            return False
        return True

    def _has_ended_well(self, job: SubmittedJobInfo) -> bool:
        if self.has_results(job.job):
            return True
        with contextlib.suppress(OSError):
            return DONE in job.aux["slurm_logfile"].read_text(errors="replace")
        return False


def _said(log: Path | None) -> str:
    """Return what SLURM itself wrote to the log of a job, such as that it took too much memory."""
    lines = []
    with contextlib.suppress(OSError, TypeError):  # there is no log
        lines = Path(log).read_text(errors="replace").splitlines()  # type: ignore[arg-type]
    errors = [line for line in lines if line.startswith(("slurmstepd: error: ", "srun: error: "))]
    return f": {errors[-1]} ({log})" if errors else ""


def _state(job: SubmittedJobInfo, states: dict[str, tuple[str, str]]) -> tuple[str | None, str]:
    """Return (state, reason for it) of a job, from slurm.all_states(); (None, "") if missing."""
    number = job.external_jobid
    return states.get(number) or states.get(number.partition("_")[0]) or (None, "")
