"""An executor plugin for Snakemake: `executor: allcores-slurm`, as profiles/slurm sets it.

It replaces the methods by which the executor of snakemake-executor-plugin-slurm loses jobs. That
one waits forever for jobs that squeue has forgotten, gives up all jobs in an outage of five
minutes, queries a database that may not exist, and reports a submission as failed at a temporary
limit. All questions to SLURM are asked here.

Snakemake finds a plugin by the name of its module, among all that Python can import. `make` and
environment.yml let Python look into this folder; a wheel puts it beside the other packages. It
imports nothing of this project, since Snakemake imports it before it knows which copy of the
project is in use.
"""

import asyncio
import contextlib
import dataclasses
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake.exceptions import WorkflowError
from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import ExecutorSettings as SlurmSettings
from snakemake_executor_plugin_slurm import common_settings, get_job_wildcards
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

if TYPE_CHECKING:
    from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

# Seconds until a failed submission is repeated: at first, and at most.
AGAIN, LONGEST_PAUSE = 5, 60
SLICE = 0.2  # seconds after which a pause between two looks at jobs checks whether it is over
LOOKS = 2  # a job that SLURM does not know at this many looks is judged by its results
MORE, MOST = 10, 60  # seconds by which the pause grows while no job ends; the longest pause
PATIENCE = 60  # seconds to wait for an answer of SLURM
# What sbatch prints where waiting helps: limits on submitted jobs, and outages. After some outages
# SLURM may have the job nevertheless.
UNSURE = ("Socket timed out", "Zero Bytes were transmitted", "Connection timed out")
TRANSIENT = (
    *("MaxSubmitJob", "MaxJobs", "job submit limit", "temporarily unable to accept job"),
    *("Unable to contact slurm controller", "Connection refused"),
    *("Resource temporarily unavailable", *UNSURE),
)
OF_POLICY = "Job violates accounting/QOS policy"
OF_ONE_JOB = re.compile(r"(QOS|Assoc)Max\w+PerJob")  # a limit that no other job's end changes
# States of a job that ended badly, and of one that has not begun.
ENDED_BADLY = {
    *("BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"),
    *("PREEMPTED", "REVOKED"),
}
ENDED = {"COMPLETED", *ENDED_BADLY}
QUEUED = {"PENDING", "CONFIGURING", "REQUEUED"}


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

    A job that SLURM does not know any more has ended: squeue forgets jobs after MinJobAge, perhaps
    while this process was suspended. Such a job, and one that ended badly according to SLURM, is
    judged by whether its output is there.
    """

    is_told_to_end: Callable[[], bool] = staticmethod(lambda: False)
    note_state: Callable[[int, bool], object] = staticmethod(lambda number, is_running: None)

    def __post_init__(self, test_mode: bool = False) -> None:
        super().__post_init__(test_mode)
        self.submitting = threading.local()
        self.told: str | None = None  # why jobs were not accepted at the last report
        self.answers = True
        self.reasons: set[str] = set()  # why jobs were pending at the last report
        self.unknown: dict[str, int] = {}  # number of a job -> looks at which SLURM knew no such
        # Number -> job, of those that have not ended. `active_jobs` lacks them while it looks.
        self.submitted: dict[str, SubmittedJobInfo] = {}

    def begin(
        self,
        logs: str | Path,
        is_told_to_end: Callable[[], bool],
        note_state: Callable[[int, bool], object],
    ) -> None:
        """Set what depends on the invocation; called before the first job.

        Args:
            logs: the folder for the files that SLURM writes.
            is_told_to_end: returns whether the invocation is told to end.
            note_state: called with Snakemake's number of a job and whether SLURM has begun it.
        """
        self.slurm_logdir = Path(logs)
        self.is_told_to_end, self.note_state = is_told_to_end, note_state

    # Submission.

    def get_account_arg(self, job: "JobExecutorInterface") -> Iterator[str]:
        """Yield the flag for a job's account; without one, SLURM uses that of the user."""
        return super().get_account_arg(job) if job.resources.get("slurm_account") else iter([""])

    def get_partition_arg(self, job: "JobExecutorInterface") -> str:
        """Return the flag for a job's partition; without one, SLURM uses its default."""
        is_named = job.resources.get("slurm_partition") or self._partitions
        return super().get_partition_arg(job) if is_named else ""

    def report_job_submission(self, job_info: SubmittedJobInfo, register_job: bool = True) -> None:
        """Note that SLURM has a job."""
        self.submitted[job_info.external_jobid] = job_info
        super().report_job_submission(job_info, register_job)

    def run_job(self, job: "JobExecutorInterface") -> None:
        """Submit a job, and retry after a pause if that failed for a temporary reason.

        Otherwise an outage of a minute, or a limit of jobs, would use up all attempts at once.
        """
        pause = AGAIN
        while not self.is_told_to_end():
            self.submitting.refusal = ""
            super().run_job(job)
            refusal = self.submitting.refusal
            if not refusal:
                break
            for _ in range(pause):
                time.sleep(0 if self.is_told_to_end() else 1)
            pause = min(2 * pause, LONGEST_PAUSE)
            if any(reason in refusal for reason in UNSURE) and self._is_there(job):
                break
        else:
            message = "it was not submitted, since the invocation is told to end"
            super()._report_job_error_threadsafe(SubmittedJobInfo(job), message)
        if self.is_told_to_end():  # meanwhile, perhaps after the others were cancelled
            self.cancel_pending()

    def _report_job_error_threadsafe(self, job_info: SubmittedJobInfo, msg: str) -> None:
        if is_transient(msg) and not self.is_told_to_end():
            self.submitting.refusal = msg
            reason = reason_of(msg)
            if reason != self.told:
                self.told = reason
                self.logger.warning(f"SLURM accepts no more jobs for now; they wait: {reason}")
        else:
            super()._report_job_error_threadsafe(job_info, msg)

    def _is_there(self, job: "JobExecutorInterface") -> bool:
        """Return whether SLURM has a job although sbatch failed; if so, the job is watched."""
        while (jobs := jobs_of_user()) is None and not self.is_told_to_end():
            time.sleep(AGAIN)
        folder = self.slurm_logdir / f"rule_{job.name}" / get_job_wildcards(job)
        for number, one in (jobs or {}).items():
            log = Path(one.output)
            is_going = one.state not in ENDED and number not in self.numbers()
            if is_going and log.parent == folder:
                found = SubmittedJobInfo(job, external_jobid=number, aux={"slurm_logfile": log})
                self._report_job_submission_threadsafe(found)
                return True
        return False

    # Watching.

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncIterator[SubmittedJobInfo]:
        """Yield those of these jobs that have not ended, and report the others."""
        if not active_jobs:  # also before __post_init__(): the thread that looks starts first
            return
        async with self.status_rate_limiter:
            states = jobs_of_user()
        if (states is not None) != self.answers:
            self.answers = states is not None
            self.logger.warning(
                "SLURM answers again" if self.answers else "SLURM does not answer; asking again"
            )
        self._tell_reasons(active_jobs, states or {})
        have_ended = False
        for job in active_jobs:
            if states is not None and self._has_ended(job, states):
                have_ended = True
            else:
                yield job
        first = self.workflow.executor_settings.init_seconds_before_status_checks
        pause = first if have_ended else self.next_seconds_between_status_checks + MORE
        longest = max(1, min(MOST, seconds_remembered() // 3))
        self.next_seconds_between_status_checks = min(pause, longest)

    async def sleep(self) -> None:
        """Wait until the next look or the end of the invocation, so that Ctrl-C does not wait."""
        until = time.monotonic() + self.next_seconds_between_status_checks
        while self.wait and time.monotonic() < until:
            await asyncio.sleep(SLICE)

    def _tell_reasons(self, jobs: list[SubmittedJobInfo], states: dict[str, "InQueue"]) -> None:
        """Report why jobs are pending, each time the reasons change."""
        found = [_found(job, states) for job in jobs]
        counts = Counter(one.reason for one in found if one and one.state == "PENDING")
        del counts["None"]  # SLURM has not looked at it yet
        if counts.keys() - self.reasons:
            listed = ", ".join(f"{count} for {reason}" for reason, count in counts.items())
            self.logger.warning(f"Jobs pending in SLURM: {listed}")
        self.reasons = set(counts)

    def _has_ended(self, job: SubmittedJobInfo, states: dict[str, "InQueue"]) -> bool:
        """Return whether a job has ended; if so, it is reported."""
        number, log = job.external_jobid, job.aux.get("slurm_logfile")
        one = _found(job, states)
        state = one.state if one else ""
        self.unknown[number] = 0 if one else self.unknown.get(number, 0) + 1
        is_forgotten = self.unknown[number] == LOOKS
        # SLURM may end a job, as at its time limit, after its runs have ended: their results count.
        if (is_forgotten or state in ENDED_BADLY) and _has_output(job):
            state = "COMPLETED"
        if state == "COMPLETED":
            self.report_job_success(job)
            with contextlib.suppress(OSError):
                log.unlink()
                log.parent.rmdir()
                log.parent.parent.rmdir()
        elif is_forgotten or state in ENDED_BADLY:
            state = state or "forgotten by SLURM"
            text = f"SLURM's job {number} ended with the state {state}{_said(log)}. "
            self.report_job_error(job, msg=text, aux_logs=[str(log)])
        else:
            if state:
                self.note_state(job.job.jobid, state not in QUEUED)
            return False
        self.submitted.pop(number, None)
        return True

    # Cancelling.

    def numbers(self) -> list[str]:
        """Return the numbers, as texts, that SLURM gave to the jobs that have not ended."""
        return list(self.submitted)

    def cancel_pending(self) -> None:
        """Cancel the jobs that SLURM has not begun, if it answers."""
        if numbers := self.numbers():
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                _answer("scancel", "--state=PENDING", *numbers)

    def cancel(self) -> str | None:
        """Cancel all jobs; return what to do if SLURM does not answer, or None.

        Snakemake itself overlooks jobs whose state it is just asking for.
        """
        try:
            self.cancel_jobs(list(self.submitted.values()))
        except WorkflowError:
            numbers = " ".join(self.numbers())
            return f"SLURM does not answer and may still have jobs; run scancel {numbers}"
        return None


@dataclasses.dataclass(frozen=True)
class InQueue:
    """What squeue says of a job: its state, the reason for it, and the file of its output."""

    state: str
    reason: str
    output: str


def jobs_of_user() -> dict[str, InQueue] | None:
    """Return number -> InQueue of each of the user's jobs that SLURM remembers.

    The result is None if SLURM does not answer.
    """
    widths = {"JobArrayID": 40, "State": 20, "Reason": 200, "StdOut": 2000}
    fields = ",".join(f"{field}:{width}" for field, width in widths.items())
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        # squeue pads fields to a number of bytes, not of characters.
        lines = _answer(
            "squeue", "-h", "--me", "--array", "--states=all", f"--Format={fields}"
        ).splitlines()
        ends = [0, *accumulate(widths.values())]
        rows = [
            [line[start:end].decode(errors="replace").strip() for start, end in pairwise(ends)]
            for line in lines
        ]
        return {number: InQueue(*rest) for number, *rest in rows}
    return None


def problems(logs: str | Path) -> Iterator[str]:
    """Yield lines on why jobs cannot be submitted from here, or not now.

    Jobs continue when snakemake is killed, and two at once would train the same run twice.

    Args:
        logs: the folder into which only this config's jobs write.
    """
    for program in ("sbatch", "squeue", "scancel"):
        if shutil.which(program) is None:
            yield f"there is no {program}"
            return
    jobs = jobs_of_user()
    if jobs is None:
        yield "squeue does not answer"
        return
    left = {
        number: one
        for number, one in jobs.items()
        if one.output.startswith(f"{logs}/") and one.state not in ENDED
    }
    if left:
        yield from (
            f"job {number} of an earlier invocation: {one.state}" for number, one in left.items()
        )
        yield f"Wait for them, or run `scancel {' '.join(left)}`; then run snakemake again."


def is_transient(text: str) -> bool:
    """Return whether sbatch may accept a job later that it refused for this reason.

    A limit on the number of jobs passes when one of the user's jobs ends; one that a single job
    exceeds never does. Where sbatch does not name the limit, the refusal is final if the user has
    no job.
    """
    if OF_ONE_JOB.search(text):
        return False
    if OF_POLICY in text:
        jobs = jobs_of_user()
        if jobs is not None and all(one.state in ENDED for one in jobs.values()):
            return False
    return any(reason in text for reason in TRANSIENT)


def seconds_remembered() -> int:
    """Return for how many seconds SLURM remembers ended jobs: MinJobAge; 300 if it is unknown."""
    if not _remembered:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            found = re.search(rb"MinJobAge\s*=\s*(\d+)", _answer("scontrol", "show", "config"))
            _remembered.append(int(found[1]) if found else 300)
    return _remembered[0] if _remembered else 300


_remembered: list[int] = []  # what seconds_remembered() returned: asked once


def reason_of(message: str) -> str:
    """Return what sbatch printed, of a message that also has the command."""
    said = re.findall(r"sbatch: (?:error: )?(.+)", message.partition("sbatch call:")[0])
    return "; ".join(line.rstrip("'.") for line in said) or message.strip() or "it gave no reason"


def _answer(*command: str) -> bytes:
    """Return what a program of SLURM prints."""
    return subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True).stdout


def _found(job: SubmittedJobInfo, states: dict[str, InQueue]) -> InQueue | None:
    number = job.external_jobid
    return states.get(number) or states.get(number.partition("_")[0])


def _has_output(job: SubmittedJobInfo) -> bool:
    return all(Path(str(file)).exists() for file in job.job.output)


def _said(log: Path | None) -> str:
    """Return what SLURM itself wrote to the log of a job, such as that it took too much memory."""
    lines: Iterable[str] = []
    with contextlib.suppress(OSError, TypeError):  # there is no log
        lines = Path(log).read_text(errors="replace").splitlines()  # type: ignore[arg-type]
    errors = [line for line in lines if line.startswith(("slurmstepd: error: ", "srun: error: "))]
    return f": {errors[-1]} ({log})" if errors else ""
