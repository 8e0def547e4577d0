"""What an invocation of snakemake records for observers: what it has to do, and what it does.

There are two files. call.json is written when the invocation begins. jobs.jsonl gets a line at each
change of a job. A lock shows whether the invocation is still running.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from allcores import files
from allcores_study.training import progress

if TYPE_CHECKING:
    from allcores_study.records.results_folder import ResultsFolder
    from allcores_study.training.progress import RunProgress

CALL, JOBS, LOCK = "call.json", "jobs.jsonl", "lock"
# The states of a job. QUEUED: a cluster has it and has not begun it. STOPPED: the invocation was
# told to stop before the job ended.
QUEUED, RUNNING, FINISHED, FAILED = "queued", "running", "finished", "failed"
STOPPED = "stopped"
PATIENCE = 1.0  # seconds for which an observer may hold the lock


@dataclass(frozen=True)
class CallRecord:
    """One invocation of snakemake.

    Attributes:
        started: in seconds since 1970.
        host, pid: where it runs.
        cores: number of cores that its jobs share; None on a cluster.
        is_spread: whether a batch system runs it, or its jobs.
        expected: path of each run to train -> core-seconds that it is expected to claim.
    """

    started: float
    host: str
    pid: int
    cores: int | None
    is_spread: bool
    expected: dict[str, float]

    @classmethod
    def of_this_process(cls, cores: int | None, expected: dict[str, float]) -> CallRecord:
        is_spread = cores is None or "SLURM_JOB_ID" in os.environ
        return cls(time.time(), platform.node(), os.getpid(), cores, is_spread, expected)


@dataclass(frozen=True)
class JobRecord:
    """A job that was started or submitted.

    Attributes:
        rule: the name of its rule.
        title: what it makes: the path of its run, or else its wildcards.
        state: one of the states above.
        began, since: when it began and when its state last changed, in seconds since 1970.
        cores: number of cores that it occupies.
        log: its log file; "" if none.
        message: what it does. If it failed: the reason given by the system that ran it, or "".
        runs: paths of the runs that it trains.
        progress: the file in which these record their progress; "" if none.
    """

    rule: str
    title: str
    state: str
    began: float
    since: float
    cores: int
    log: str
    message: str = ""
    runs: list[str] = field(default_factory=list)
    progress: str = ""

    def progress_of_runs(self) -> dict[str, RunProgress]:
        """Return path -> progress of its runs that have begun; {} once the job has finished."""
        is_known = self.state == FINISHED or not self.progress
        return {} if is_known else progress.read(self.progress)


class Journal:
    """The files of the latest invocation in a results folder, written by this process."""

    def __init__(self, folder: ResultsFolder, call: CallRecord) -> None:
        self.folder, self.call = folder, call
        self.jobs: dict[int, JobRecord] = {}
        Path(folder.call_file(CALL)).parent.mkdir(parents=True, exist_ok=True)
        files.write_text(folder.call_file(CALL), json.dumps(asdict(call)))
        # Another member of the group may have written it, and only its owner may overwrite it.
        Path(folder.call_file(JOBS)).unlink(missing_ok=True)
        self.file = Path(folder.call_file(JOBS)).open("w", buffering=1)

    def note(self, number: int, job: JobRecord) -> None:
        """Record the new state of a job.

        Args:
            number: the job's number in this invocation.
        """
        self.jobs[number] = job
        with contextlib.suppress(OSError):  # the invocation can do without, on a full disk
            self.file.write(json.dumps([number, asdict(job)]) + "\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()


def read_call(folder: ResultsFolder) -> CallRecord | None:
    """Return the latest CallRecord of a results folder; None if there was none."""
    try:
        return CallRecord(**json.loads(Path(folder.call_file(CALL)).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def read_jobs(folder: ResultsFolder) -> list[JobRecord]:
    """Return the jobs of the latest invocation that have begun, without damaged lines."""
    jobs = {}
    with contextlib.suppress(OSError):
        for line in Path(folder.call_file(JOBS)).read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                number, job = json.loads(line)
                jobs[number] = JobRecord(**job)
    return list(jobs.values())


def lock(folder: ResultsFolder) -> TextIO:
    """Lock a results folder for this invocation, or exit with a line that names the other one.

    Snakemake's own locks do not suffice: an invocation that ends removes those of all others. This
    one ends with its process, however that ends.

    Returns:
        A file that holds the lock while it is open.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return hold(folder.call_file(LOCK))
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                sys.exit(
                    f"{folder.path}: another invocation is running ({error}); run this again when "
                    "it has ended"
                )
            time.sleep(PATIENCE / 10)


def hold(file: str | Path) -> TextIO:
    """Lock a file for as long as it is open.

    Raises:
        BlockingIOError: another process holds it, which the message names.
    """
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    held = Path(file).open("a+")
    try:
        files.hold(held, wait=False)
    except BlockingIOError:
        held.close()
        raise BlockingIOError(Path(file).read_text()) from None
    held.truncate(0)
    held.write(_said(os.getpid(), platform.node()))
    held.flush()
    return held


def is_held(folder: ResultsFolder) -> bool:
    """Return whether an invocation uses a results folder, or is about to."""
    with contextlib.suppress(FileNotFoundError), Path(folder.call_file(LOCK)).open() as held:
        try:
            files.hold(held, wait=False, is_shared=True)
        except BlockingIOError:
            return True
    return False


def is_held_by(folder: ResultsFolder, call: CallRecord) -> bool:
    """Return whether an invocation was the last one that began to use a results folder."""
    try:
        return Path(folder.call_file(LOCK)).read_text() == _said(call.pid, call.host)
    except OSError:
        return False


def _said(pid: int, host: str) -> str:
    return f"process {pid} on {host}"


def forget_calls(folder: ResultsFolder, name: str) -> None:
    """Delete what earlier invocations recorded about their shared jobs.

    Args:
        name: of the invocation that is running here, and holds the lock.
    """
    for place in Path(folder.call_file("")).glob("*"):
        if place.is_dir() and re.fullmatch("[0-9a-f]{12,}", place.name) and place.name != name:
            shutil.rmtree(place, ignore_errors=True)  # may be another user's
