"""From Snakemake's log events to the states of the jobs of a call."""

import dataclasses
import logging
import time

from snakemake_interface_logger_plugins.common import LogEvent

from allcores.campaign.journal import FAILED, FINISHED, RUNNING, Job

OF_JOBS = (
    *(LogEvent.JOB_INFO, LogEvent.JOB_STARTED, LogEvent.JOB_FINISHED, LogEvent.JOB_ERROR),
    *(LogEvent.SHELLCMD, LogEvent.PROGRESS),
)


class Events(logging.Handler):
    """Notes what Snakemake's logger says of each job, by the interface of its logger plugins.

    Args:
        journal: journal.Journal.
        title: function of a rule's name and wildcards that says what a job is.
        notice: called with a Job after its state has changed.
    """

    def __init__(self, journal, title, notice=lambda job: None):
        super().__init__()
        self.journal, self.title, self.notice = journal, title, notice
        self.known = {}  # jobs that may not have begun yet

    def emit(self, record):
        event = getattr(record, "event", None)
        if event == LogEvent.JOB_INFO:
            log, now = str(record.log[0]) if record.log else "", time.time()
            title = self.title(record.rule_name, record.wildcards)
            self.known[record.jobid] = Job(
                record.rule_name, title, RUNNING, now, now, record.threads, log
            )
            self._note(record.jobid, RUNNING)
        elif event == LogEvent.JOB_FINISHED:
            self._note(record.job_id, FINISHED)
        elif event == LogEvent.JOB_ERROR:
            self._note(record.jobid, FAILED, record.rule_msg or "")

    def _note(self, number, state, message=""):
        if number in self.known:
            changed = {"state": state, "since": time.time(), "message": message}
            job = dataclasses.replace(self.known[number], **changed)
            self.journal.note(number, job)
            self.notice(job)


class Quiet(logging.Filter):
    """Keeps off the terminal what Snakemake says of single jobs; its own log has all of it.

    How many have ended the board says, and why one failed, closing.failure(), in fewer lines.

    Args:
        logger: Snakemake's.
    """

    def __init__(self, logger):
        super().__init__()
        self.handlers = [handler for handler in logger.handlers if is_of_terminal(handler)]
        for handler in self.handlers:
            handler.addFilter(self)

    def filter(self, record):
        if getattr(record, "event", None) in OF_JOBS:
            return False
        message = record.getMessage()
        return not message.startswith("Select jobs") and "CalledProcessError in file" not in message

    def close(self):
        for handler in self.handlers:
            handler.removeFilter(self)


def is_of_terminal(handler):
    """Whether a logging handler writes to the terminal, or where its output was sent instead."""
    is_of_file = isinstance(handler, logging.FileHandler)
    return isinstance(handler, logging.StreamHandler) and not is_of_file
