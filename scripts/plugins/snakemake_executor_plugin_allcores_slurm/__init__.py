"""An executor plugin for Snakemake: `executor: allcores-slurm`, as profiles/slurm sets it.

It replaces the methods by which the executor of snakemake-executor-plugin-slurm loses jobs. That
one waits forever for jobs that squeue has forgotten, gives up all jobs in an outage of five
minutes, queries a database that may not exist, and reports a submission as failed at a temporary
limit. follow() sets what depends on the invocation: see allcores_study/campaign/slurm_jobs.py.

Snakemake finds a plugin by the name of its module, among all that Python can import. `make` and
environment.yml let Python look into this folder; a wheel puts it beside the other packages. It
imports nothing of this project, since Snakemake imports it before it knows which copy of the
project is in use.
"""

import asyncio
import dataclasses
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import ExecutorSettings as SlurmSettings
from snakemake_executor_plugin_slurm import common_settings

if TYPE_CHECKING:
    from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
    from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

    from allcores_study.campaign.slurm_jobs import Submission

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

# Seconds until a failed submission is repeated: at first, and at most.
AGAIN, LONGEST_PAUSE = 5, 60
SLICE = 0.2  # seconds after which a pause between two looks at jobs checks whether it is over


def _with_default(name: str, default: str | int) -> Any:
    return dataclasses.field(
        default=default, metadata=SlurmSettings.__dataclass_fields__[name].metadata
    )


@dataclasses.dataclass
class ExecutorSettings(SlurmSettings):
    """The settings of the executor for SLURM, some with other defaults.

    squeue works without an accounting database. No log is deleted, nor a folder into which a job
    of another invocation is about to write.
    """

    status_command: str = _with_default("status_command", "squeue")
    delete_logfiles_older_than: int = _with_default("delete_logfiles_older_than", 0)
    init_seconds_before_status_checks: int = _with_default("init_seconds_before_status_checks", 10)


class Executor(SlurmExecutor):
    """An executor that submits jobs to SLURM and watches them.

    Attributes:
        look, submission: see follow(); None: it was not called yet.
    """

    look: Any = None
    submission: Any = None

    def __post_init__(self, test_mode: bool = False) -> None:
        super().__post_init__(test_mode)
        self.submitting = threading.local()

    def follow(
        self,
        logs: str | Path,
        look: "Callable[[Executor, list[SubmittedJobInfo]], AsyncIterator[SubmittedJobInfo]]",
        submission: "Submission",
    ) -> None:
        """Set what depends on the invocation; called before the first job.

        Args:
            logs: the folder for the files that SLURM writes.
            look: async function of self and of jobs; yields those that have not ended, and reports
                the others.
            submission: has is_transient() and tell(), both of a message of sbatch, and
                is_told_to_end().
        """
        self.slurm_logdir, self.look, self.submission = Path(logs), look, submission

    @property
    def first_pause(self) -> int:
        """Seconds until jobs are looked at for the first time."""
        return self.workflow.executor_settings.init_seconds_before_status_checks

    async def check_active_jobs(
        self, active_jobs: "list[SubmittedJobInfo]"
    ) -> "AsyncIterator[SubmittedJobInfo]":
        """Yield those of these jobs that have not ended, and report the others."""
        if self.look is None:  # the thread that looks starts before follow() is called
            return
        async for job in self.look(self, active_jobs):
            yield job

    async def sleep(self) -> None:
        """Wait until the next look or the end of the invocation, so that Ctrl-C does not wait."""
        until = time.monotonic() + self.next_seconds_between_status_checks
        while self.wait and time.monotonic() < until:
            await asyncio.sleep(SLICE)

    def get_account_arg(self, job: "JobExecutorInterface") -> Iterator[str]:
        """Yield the flag for a job's account; without one, SLURM uses that of the user."""
        return super().get_account_arg(job) if job.resources.get("slurm_account") else iter([""])

    def run_job(self, job: "JobExecutorInterface") -> None:
        """Submit a job, and retry after a pause if that failed for a temporary reason.

        Otherwise an outage of a minute, or a limit of jobs, would use up all attempts at once.
        """
        self.submitting.has_to_wait, pause = True, AGAIN
        while self.submitting.has_to_wait:
            self.submitting.has_to_wait = False
            super().run_job(job)
            if self.submitting.has_to_wait:
                for _ in range(pause):
                    time.sleep(0 if self.submission.is_told_to_end() else 1)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _report_job_error_threadsafe(self, job_info: "SubmittedJobInfo", msg: str) -> None:
        is_over = self.submission.is_told_to_end()
        if self.submission.is_transient(msg) and not is_over:
            self.submitting.has_to_wait = True
            self.submission.tell(msg)
        else:
            super()._report_job_error_threadsafe(job_info, msg)
