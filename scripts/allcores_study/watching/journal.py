"""What an invocation of snakemake records for observers: what it has to do, and what it does.

There are two files. call.json is written when the invocation begins and when it learns how long
runs take. jobs.jsonl gets a line at each change of a job.
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
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from allcores import files
from allcores_study.training import progress
from allcores_study.watching import slurm

if TYPE_CHECKING:
    from allcores_study.records.results_folder import ResultsFolder
    from allcores_study.training.progress import RunProgress

CALL, JOBS = "call.json", "jobs.jsonl"
LOCK = "lock"
# The states of a job that has begun. STOPPED: the invocation was told to stop before the job ended.
RUNNING, FINISHED, FAILED, STOPPED = "running", "finished", "failed", "stopped"


@dataclass(frozen=True)
class CallRecord:
    """One invocation of snakemake.

    Attributes:
        started: in seconds since 1970.
        host, pid: where it runs.
        cores: number of cores that its jobs share; None on a cluster.
        is_spread: whether its runs are on several machines.
        batch_job: id of the SLURM job that it is part of; "" if none.
        expected: path of each run to train -> seconds that it is expected to take.
    """

    started: float
    host: str
    pid: int
    cores: int | None
    is_spread: bool
    batch_job: str
    expected: dict[str, float]

    @classmethod
    def of_this_process(
        cls, cores: int | None, is_spread: bool, expected: dict[str, float]
    ) -> CallRecord:
        return cls(
            started=time.time(),
            host=platform.node(),
            pid=os.getpid(),
            cores=cores,
            is_spread=is_spread,
            batch_job=os.environ.get("SLURM_JOB_ID", ""),
            expected=expected,
        )

    @property
    def is_going_on(self) -> bool | None:
        """Whether its process or its SLURM job still exists; None if it is on another machine."""
        if self.host != platform.node():
            return slurm.is_in_queue(self.batch_job) if self.batch_job else None
        with contextlib.suppress(OSError):
            return b"snakemake" in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        return False


@dataclass(frozen=True)
class JobRecord:
    """A job that has begun.

    Attributes:
        rule: the name of its rule.
        title: what it makes: the path of its run, or else its wildcards.
        state: RUNNING, FINISHED, FAILED or STOPPED.
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

    def expect(self, expected: dict[str, float]) -> None:
        """Record how long each run is now expected to take, as in CallRecord.expected."""
        self.call = replace(self.call, expected=expected)
        with contextlib.suppress(OSError):  # as in note()
            files.write_text(self.folder.call_file(CALL), json.dumps(asdict(self.call)))

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


def new_call(folder: ResultsFolder) -> str:
    """Return a name for an invocation, larger than all earlier ones whatever the clock shows.

    If a short run has several results, those of the latest invocation count.
    """
    stores = [file.stem.partition("_")[0] for file in folder.store.files]
    used = [int(name, 16) for name in (*stores, *(place.name for place in _calls(folder)))]
    return f"{max([time.time_ns(), *(last + 1 for last in used)]):x}"


def _calls(folder: ResultsFolder) -> list[Path]:
    """Return the folders in which invocations recorded their shared jobs."""
    places = Path(folder.call_file("")).glob("*")
    return [one for one in places if one.is_dir() and re.fullmatch("[0-9a-f]{12,}", one.name)]


def lock_or_wait(folder: ResultsFolder) -> TextIO | None:
    """Lock a results folder, or wait until another invocation has unlocked it.

    Snakemake's own lock does not suffice: an invocation that ends removes the locks of all others,
    and two with different targets may train the same runs.

    Returns:
        A file that holds the lock while it is open; None if another invocation had it and has
        ended.
    """
    file = _lock_file(folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = file.open("w")
    try:
        files.hold(lock, wait=False)
    except BlockingIOError:
        record = read_call(folder)
        is_known = record is not None and record.is_going_on is not False
        who = f" (process {record.pid} on {record.host})" if is_known else ""  # type: ignore[union-attr]
        waiting = f"{folder.path}: another invocation is running{who}; waiting for it to end"
        print(waiting, file=sys.stderr, flush=True)
        with lock:
            files.hold(lock)
        return None
    return lock


def _lock_file(folder: ResultsFolder) -> Path:
    return Path(folder.call_file(LOCK))


def going_on(folder: ResultsFolder, call: CallRecord | None) -> str | None:
    """Describe the invocation that may be running in a results folder; None if none is.

    Args:
        call: the latest CallRecord; None if there was none. An earlier invocation may still be
            running.
    """
    if call is not None and call.is_going_on is None:
        return (
            f"the latest invocation was on {call.host} and may still be running there; if it has "
            f"ended, delete {folder.call_file(CALL)}"
        )
    if (call is not None and call.is_going_on) or is_held(folder):
        return "snakemake is running here"
    return None


def is_held(folder: ResultsFolder) -> bool:
    """Return whether an invocation on this machine uses a results folder, or is about to."""
    with contextlib.suppress(FileNotFoundError), _lock_file(folder).open("r+") as lock:
        try:
            files.hold(lock, wait=False)
        except BlockingIOError:
            return True
    return False


def forget_calls(folder: ResultsFolder, name: str) -> None:
    """Delete what invocations that have ended recorded about their shared jobs.

    Args:
        name: of the invocation that is running here.
    """
    latest = read_call(folder)
    if latest is not None and latest.is_going_on is not False:
        return  # it may be on another machine, whose lock is not visible here
    for place in _calls(folder):
        if place.name != name:
            shutil.rmtree(place, ignore_errors=True)  # may be another user's
