"""The states of an invocation's jobs, from Snakemake's log events."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake_interface_logger_plugins.common import LogEvent

from allcores_study.training import progress
from allcores_study.watching.journal import (
    FAILED,
    FINISHED,
    QUEUED,
    RUNNING,
    STOPPED,
    JobRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from snakemake.iocontainers import Wildcards

    from allcores_study.watching.journal import Journal

JOB_EVENTS = (
    LogEvent.JOB_INFO,
    LogEvent.JOB_STARTED,
    LogEvent.JOB_FINISHED,
    LogEvent.JOB_ERROR,
    LogEvent.SHELLCMD,
    LogEvent.PROGRESS,
)
# Messages that contain one of these stay off the terminal.
HIDDEN = (
    *("Select jobs", "CalledProcessError in file", "Will exit after finishing"),
    *("Shutting down, this might", "At least one job did not complete successfully"),
)


class Events(logging.Handler):
    """A log handler that records the state of each job from Snakemake's log events.

    It has the interface of Snakemake's logger plugins.

    Args:
        journal: where the states are recorded.
        paths: maps a rule's name and wildcards to the paths of the runs that a job trains.
        notice: called with a job after its state has changed.

    Attributes:
        is_told_to_stop: set when the invocation is told to stop. Jobs that then end badly have not
            failed.
        is_submitting: set if the jobs of runs are submitted to a cluster.
    """

    def __init__(
        self,
        journal: Journal,
        paths: Callable[[str, Wildcards], list[str]],
        notice: Callable[[JobRecord], object],
    ) -> None:
        super().__init__()
        self.is_told_to_stop = self.is_submitting = False
        self.journal, self.paths, self.notice = journal, paths, notice
        self.jobs: dict[int, JobRecord] = {}  # by number; some may not have begun yet

    def emit(self, record: Any) -> None:
        event = getattr(record, "event", None)
        if event == LogEvent.JOB_INFO:
            job = self.jobs[record.jobid] = self._begun(record)
            if len(job.runs) == 1:  # left by an earlier attempt
                _delete(job.progress)
            # What is submitted to a cluster runs once the cluster says so.
            is_queued = self.is_submitting and job.runs
            self._note(record.jobid, QUEUED if is_queued else RUNNING, record.rule_msg or "")
        elif event == LogEvent.JOB_FINISHED:
            self._note(record.job_id, FINISHED)
        elif event == LogEvent.JOB_ERROR and record.jobid in self.jobs:
            is_stopped = self._is_stopped(self.jobs[record.jobid])
            self._note(record.jobid, STOPPED if is_stopped else FAILED, record.rule_msg or "")

    def _begun(self, record: Any) -> JobRecord:
        """Return the record of a job that begins."""
        rule, log = record.rule_name, str(record.log[0]) if record.log else ""
        paths, now = self.paths(rule, record.wildcards), time.time()
        names = (str(text) for name, text in record.wildcards.items() if name != "made_of")
        title, file = " ".join(names), ""
        if len(paths) == 1:
            title, file = paths[0], self.journal.folder.job(paths[0], "jsonl")
        elif paths:
            file = str(Path(log).with_suffix(".jsonl"))
        return JobRecord(rule, title, RUNNING, now, now, record.threads, log, "", paths, file)

    def _is_stopped(self, job: JobRecord) -> bool:
        """Return whether a job that ended badly was told to stop, and has not failed."""
        known = {one.state for one in job.progress_of_runs().values()}
        return progress.STOPPED in known or (self.is_told_to_stop and progress.FAILED not in known)

    def note_state(self, number: int, is_running: bool) -> None:
        """Note whether a cluster has begun a job that was submitted to it.

        Args:
            number: Snakemake's of the job.
        """
        told = RUNNING if is_running else QUEUED
        if number in self.jobs and self.jobs[number].state != told:
            self._note(number, told, self.jobs[number].message)

    def _note(self, number: int, state_of_job: str, message: str = "") -> None:
        if number not in self.jobs:
            return
        changed: dict[str, Any] = {"state": state_of_job, "since": time.time(), "message": message}
        job = self.jobs[number] = dataclasses.replace(self.jobs[number], **changed)
        self.journal.note(number, job)
        self.notice(job)
        # A job of several runs keeps its file: what it has trained stays trained if it is retried.
        if len(job.runs) == 1 and state_of_job == FINISHED:
            _delete(job.progress)
            _delete(Path(job.progress).with_suffix(".json"))


def _delete(file: str | Path) -> None:
    with contextlib.suppress(OSError):
        Path(file).unlink()


def quiet(logger: logging.Logger) -> None:
    """Keep Snakemake's messages about single jobs, and about stopping, off the terminal.

    Its log file still has all of them. The line at the foot shows how many jobs have ended;
    closing.failure() shows why one failed.

    Args:
        logger: Snakemake's.
    """
    for handler in filter(is_of_terminal, logger.handlers):
        handler.addFilter(_is_shown)


def _is_shown(record: logging.LogRecord) -> bool:
    is_of_job = getattr(record, "event", None) in JOB_EVENTS
    return not is_of_job and not any(text in record.getMessage() for text in HIDDEN)


def is_of_terminal(handler: logging.Handler) -> bool:
    """Return whether a logging handler writes to the terminal, or to where that is redirected."""
    is_of_file = isinstance(handler, logging.FileHandler)
    return isinstance(handler, logging.StreamHandler) and not is_of_file
