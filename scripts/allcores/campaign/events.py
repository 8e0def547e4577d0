"""From Snakemake's log events to the states of the jobs of a call."""

import dataclasses
import logging
import time

from snakemake_interface_logger_plugins.common import LogEvent

from allcores.campaign.journal import FAILED, FINISHED, RUNNING, Job


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
            self._note(record.jobid, FAILED)

    def _note(self, number, state):
        if number in self.known:
            job = dataclasses.replace(self.known[number], state=state, since=time.time())
            self.journal.note(number, job)
            self.notice(job)
