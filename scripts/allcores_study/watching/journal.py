"""What a call of snakemake records for those who watch it: what it has to do, and what it does.

Two files: call.json, written when the call begins and when it learns how long runs take, and
jobs.jsonl, to which each change of a job adds a line.
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
# The states of a job that has begun; STOPPED: the call was told to end before the job had.
RUNNING, FINISHED, FAILED, STOPPED = "running", "finished", "failed", "stopped"


@dataclass(frozen=True)
class CallRecord:
    """A call of snakemake.

    Attributes:
        started: seconds since 1970.
        host, pid: where it runs.
        cores: number of cores that its jobs share; None: on a cluster.
        is_spread: whether its runs are on several machines.
        batch_job: SLURM's id of the job that it is part of; "": it is part of none.
        expected: path of each run that it has to train -> seconds that it is expected to take.
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
        """Whether its process is there, or SLURM has its job; None: it is on another machine."""
        if self.host != platform.node():
            return slurm.is_in_queue(self.batch_job) if self.batch_job else None
        with contextlib.suppress(OSError):
            return b"snakemake" in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        return False


@dataclass(frozen=True)
class JobRecord:
    """A job of a call that has begun.

    Attributes:
        rule: the name of its rule.
        title: what it makes: the path of its run, or else its wildcards.
        state: RUNNING, FINISHED, FAILED or STOPPED.
        began, since: when it began, and when its state changed last, in seconds since 1970.
        cores: number of cores that it occupies.
        log: its log file; "": it has none.
        message: what it does; where it failed, why, by the system that ran it, or "".
        runs: paths of the runs that it trains.
        progress: the file in which these record how far they are; "": there is none.
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
        """Path -> progress.RunProgress of its runs that have begun; {} once it has ended well, as
        its state says all then."""
        is_known = self.state == FINISHED or not self.progress
        return {} if is_known else progress.read(self.progress)


class Journal:
    """The files of the latest call of a ResultsFolder, which this process writes."""

    def __init__(self, folder: ResultsFolder, call: CallRecord) -> None:
        self.folder, self.call = folder, call
        self.jobs: dict[int, JobRecord] = {}
        Path(folder.call_file(CALL)).parent.mkdir(parents=True, exist_ok=True)
        files.write_text(folder.call_file(CALL), json.dumps(asdict(call)))
        # Another member of a group may have written it, and only its owner may write it again.
        Path(folder.call_file(JOBS)).unlink(missing_ok=True)
        self.file = Path(folder.call_file(JOBS)).open("w", buffering=1)

    def expect(self, expected: dict[str, float]) -> None:
        """Note how long each run is expected to take now, as CallRecord.expected."""
        self.call = replace(self.call, expected=expected)
        with contextlib.suppress(OSError):  # as in note()
            files.write_text(self.folder.call_file(CALL), json.dumps(asdict(self.call)))

    def note(self, number: int, job: JobRecord) -> None:
        """Note the new state of a JobRecord.

        Args:
            number: the job's number in this call.
        """
        self.jobs[number] = job
        with contextlib.suppress(OSError):  # the call can do without, on a full disk
            self.file.write(json.dumps([number, asdict(job)]) + "\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()


def read_call(folder: ResultsFolder) -> CallRecord | None:
    """The latest CallRecord of a ResultsFolder; None: there was none."""
    try:
        return CallRecord(**json.loads(Path(folder.call_file(CALL)).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def read_jobs(folder: ResultsFolder) -> list[JobRecord]:
    """The Jobs of the latest call that have begun; a damaged line does not count."""
    jobs = {}
    with contextlib.suppress(OSError):
        for line in Path(folder.call_file(JOBS)).read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                number, job = json.loads(line)
                jobs[number] = JobRecord(**job)
    return list(jobs.values())


def new_call(folder: ResultsFolder) -> str:
    """A name for a call of snakemake, larger than those of all earlier ones, whatever the clock
    says: of several results of a short run, the last call's count."""
    stores = [file.stem.partition("_")[0] for file in folder.store.files]
    used = [int(name, 16) for name in (*stores, *(place.name for place in _calls(folder)))]
    return f"{max([time.time_ns(), *(last + 1 for last in used)]):x}"


def _calls(folder: ResultsFolder) -> list[Path]:
    """The folders of what calls have written about their shared jobs."""
    places = Path(folder.call_file("")).glob("*")
    return [one for one in places if one.is_dir() and re.fullmatch("[0-9a-f]{12,}", one.name)]


def lock_or_wait(folder: ResultsFolder) -> TextIO | None:
    """The lock of a results folder, a file to keep open while a call goes on there; None: another
    call had it, and has ended now.

    Snakemake's own lock does not suffice: a call that ends removes the locks of all others, and two
    calls with other targets may train the same runs.
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
        waiting = f"Another call is going on in {folder.path}{who}: waiting for its end"
        print(waiting, file=sys.stderr, flush=True)
        with lock:
            files.hold(lock)
        return None
    return lock


def _lock_file(folder: ResultsFolder) -> Path:
    return Path(folder.call_file(LOCK))


def going_on(folder: ResultsFolder, call: CallRecord | None) -> str | None:
    """Which call may be going on in a results folder, in words; None: none is.

    Args:
        call: the latest CallRecord; None: there was none. An earlier one may go on beside it.
    """
    if call is not None and call.is_going_on is None:
        return (
            f"the latest call was made on {call.host}, and whether it goes on cannot be seen from "
            f"here: if it has ended, delete {folder.call_file(CALL)}"
        )
    if (call is not None and call.is_going_on) or is_held(folder):
        return "a call of snakemake is going on here"
    return None


def is_held(folder: ResultsFolder) -> bool:
    """Whether a call of this machine is going on in a results folder, or is about to begin."""
    with contextlib.suppress(FileNotFoundError), _lock_file(folder).open("r+") as lock:
        try:
            files.hold(lock, wait=False)
        except BlockingIOError:
            return True
    return False


def forget_calls(folder: ResultsFolder, name: str) -> None:
    """Delete what calls that have ended have written about their shared jobs.

    Args:
        name: of the call that goes on here.
    """
    latest = read_call(folder)
    if latest is not None and latest.is_going_on is not False:
        return  # on another machine, whose lock may not be seen here
    for place in _calls(folder):
        if place.name != name:
            shutil.rmtree(place, ignore_errors=True)  # another user's, say
