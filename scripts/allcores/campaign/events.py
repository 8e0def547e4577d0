"""The states of the jobs of a call, from Snakemake's log events."""

import dataclasses
import logging
import re
import time
from pathlib import Path

from snakemake_interface_logger_plugins.common import LogEvent

from allcores.campaign import state
from allcores.campaign.journal import FAILED, FINISHED, RUNNING, STOPPED, JobRecord

# The last line of a log that says why a program failed: an exception, or "report.py: ...".
ERROR = re.compile(r"[\w.]*(Error|Exception)\b|\w+\.py: ")
JOB_EVENTS = (
    LogEvent.JOB_INFO,
    LogEvent.JOB_STARTED,
    LogEvent.JOB_FINISHED,
    LogEvent.JOB_ERROR,
    LogEvent.SHELLCMD,
    LogEvent.PROGRESS,
)


class Events(logging.Handler):
    """Notes the state of each job, by the interface of Snakemake's logger plugins.

    Args:
        journal: journal.Journal.
        paths: function of a rule's name and wildcards: the paths of the runs that a job trains.
        notice: called with a JobRecord after its state has changed.

    Attributes:
        is_told_to_stop: set when the call is told to end: jobs that then end badly have not failed.
    """

    def __init__(self, journal, paths, notice):
        super().__init__()
        self.is_told_to_stop = False
        self.journal, self.paths, self.notice = journal, paths, notice
        self.jobs = {}  # by their numbers; some may not have begun yet

    def emit(self, record):
        event = getattr(record, "event", None)
        if event == LogEvent.JOB_INFO:
            log, now = str(record.log[0]) if record.log else "", time.time()
            rule, paths = record.rule_name, self.paths(record.rule_name, record.wildcards)
            title = paths[0] if len(paths) == 1 else " ".join(map(str, record.wildcards.values()))
            self.jobs[record.jobid] = JobRecord(
                rule, title, RUNNING, now, now, record.threads, log, runs=paths
            )
            self._note(record.jobid, RUNNING, record.rule_msg or "")
        elif event == LogEvent.JOB_FINISHED:
            self._note(record.job_id, FINISHED)
        elif event == LogEvent.JOB_ERROR:
            job = self.jobs.get(record.jobid)
            is_stopped = job and (state.was_stopped(job) or self._was_ended(job))
            self._note(record.jobid, STOPPED if is_stopped else FAILED, record.rule_msg or "")

    def _was_ended(self, job):
        """Whether a job that was told to stop ended without an error of its own."""
        log = state.text_of(job.log).rstrip()
        if not log or Path(job.log).stat().st_mtime < job.began:
            return self.is_told_to_stop
        has_error = ERROR.match(log.rpartition("\n")[2])
        return self.is_told_to_stop and not job.runs and not has_error

    def _note(self, number, state_of_job, message=""):
        if number in self.jobs:
            changed = {"state": state_of_job, "since": time.time(), "message": message}
            job = dataclasses.replace(self.jobs[number], **changed)
            self.journal.note(number, job)
            self.notice(job)


class Quiet(logging.Filter):
    """Keeps Snakemake's messages about single jobs off the terminal; its log file has all of them.

    The board says how many have ended; closing.failure() says in fewer lines why one failed.

    Args:
        logger: Snakemake's.
    """

    def __init__(self, logger):
        super().__init__()
        self.handlers = [handler for handler in logger.handlers if is_of_terminal(handler)]
        for handler in self.handlers:
            handler.addFilter(self)

    def filter(self, record):
        if getattr(record, "event", None) in JOB_EVENTS:
            return False
        message = record.getMessage()
        return not message.startswith("Select jobs") and "CalledProcessError in file" not in message

    def close(self):
        for handler in self.handlers:
            handler.removeFilter(self)


def is_of_terminal(handler):
    """Whether a logging handler writes to the terminal, or to where that is redirected."""
    is_of_file = isinstance(handler, logging.FileHandler)
    return isinstance(handler, logging.StreamHandler) and not is_of_file
