"""An invocation of snakemake: its config as runs, and what happens when it begins and ends."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import logging
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake.iocontainers import Wildcards
from snakemake.utils import update_config

from allcores.files import write_text
from allcores.machine import memory
from allcores_study import yaml_files
from allcores_study.campaign import commands, stopping, study_jobs, warm_start
from allcores_study.campaign import snakemake_internals as internals
from allcores_study.campaign.data_jobs import DataJobs
from allcores_study.campaign.run_jobs import RunJobs
from allcores_study.campaign.study_jobs import StudyJob
from allcores_study.config import checks, fit, grid, settings, sweeps
from allcores_study.planning import preflight
from allcores_study.planning.estimate import Estimates
from allcores_study.records import marks, results_folder
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.watching import closing, journal
from allcores_study.watching.closing import stop_at, writable_problem
from allcores_study.watching.events import Events, quiet
from allcores_study.watching.ledger import Ledger
from allcores_study.watching.progress_line import CallProgress, ProgressLine

if TYPE_CHECKING:
    from logging import Logger

    from snakemake.jobs import Job
    from snakemake.workflow import Workflow

    from allcores_study.watching.journal import JobRecord, Journal

CANNOT_SUBMIT = "Jobs cannot be submitted from here"


class Call:
    """What the rules share.

    Args:
        workflow: Snakemake's.
        config: the config as Snakemake has merged it.

    Attributes:
        folder: where the results go.
        config: with its sweeps expanded.
        table: the runs of the config.
    """

    def __init__(self, workflow: Workflow, config: dict[str, Any]) -> None:
        # Snakemake keeps all jobs in memory, none of them garbage: collecting less often saves a
        # large dry run a tenth of its time; not collecting at exit saves every invocation 0.4 s.
        gc.set_threshold(200_000)
        atexit.register(gc.freeze)
        self.workflow, self.files = workflow, internals.config_files(workflow)
        self.is_main = internals.is_main_process(workflow)
        self.local_cores = internals.local_cores(workflow)
        self.locked, self.open = contextlib.ExitStack(), contextlib.ExitStack()
        self.journal: Journal | None = None
        self.events: Events | None = None
        self.reported: set[str] = set()  # names of the studies whose report is made
        self.given = internals.given(workflow)
        update_config(config, yaml_files.typed(internals.given_values(workflow)))
        self.merged_config = config
        try:
            name = results_folder.name_of(self.files)
        except ValueError as error:
            sys.exit(str(error))
        self.folder = ResultsFolder(f"results/{name}")
        self.name = f"{time.time_ns():x}"
        if self.local_cores == 0:  # Snakemake would wait forever for a core
            sys.exit("--cores: found 0; expected a whole number from 1, or `all`")
        if self.is_main:  # else the invocation that submitted this job has checked
            # Snakemake assumes one core for a dry run that was given none.
            has_flag = any(word.startswith(("--cores", "-c", "--jobs", "-j")) for word in sys.argv)
            self._check(self.local_cores if self.local_cores != 1 or has_flag else None)
            stop_at(results_folder.foreign(self.files, self.folder.path))
            stop_at(writable_problem(Path(self.folder.path).absolute()))
        self.merged_config = settings.with_defaults(config)
        self.config = sweeps.expanded(self.merged_config)
        self.table = grid.expand(self.config)
        if self.local_cores is not None:
            internals.offer_memory(workflow, memory.free_mb())
        elif self.is_main:
            internals.one_local_job_at_a_time(workflow)

    def _check(self, cores: int | None) -> None:
        """Stop at findings on the config; cores: that runs share, None if that is not known."""
        nodes = 1 if cores else None
        stop_at(checks.findings(self.merged_config, self.files, cores, nodes, commands.cores_flag))

    @property
    def is_on_cluster(self) -> bool:
        """Whether jobs are submitted, or this is in one of them."""
        return self.local_cores is None or not self.is_main

    @property
    def wildcard_constraints(self) -> dict[str, str]:
        patterns = {
            name: "|".join(re.escape(str(value)) for value in allowed)
            for name, allowed in self.table.wildcards().items()
        }
        numbers = dict.fromkeys(("folds", "inner", "number"), "[0-9]+")
        return patterns | numbers | {"call": "[0-9a-f]+", "made_of": marks.PATTERN}

    @property
    def is_warm(self) -> bool:
        """Whether there is a warm process: see campaign/warm_start.py."""
        return self.local_cores is not None and self.is_main

    @functools.cached_property
    def data(self) -> DataJobs:
        """What the rules of data.smk call."""
        return DataJobs(self)

    @functools.cached_property
    def runs(self) -> RunJobs:
        """What the rules of train.smk call."""
        return RunJobs(self)

    @functools.cached_property
    def studies(self) -> list[StudyJob]:
        """What the rules of each study's report call."""
        return [StudyJob(self, study, self.table) for study in self.table.reported]

    def targets(self, wildcards: Wildcards) -> list[str]:
        """Return the marks of every run, dataset and report."""
        datas = (self.ledger.data(run) for run in self.table.runs.values())
        data = {mark for marks_of_run in datas for mark in marks_of_run}
        # A report's mark brings all that its rule makes; a valid report may have no mark.
        reports = [job.mark or job.page for job in self.studies]
        return [*self.runs.request(self.table.runs), *sorted(data), *reports]

    @functools.cached_property
    def ledger(self) -> Ledger:
        """The Ledger of the results."""
        tell = functools.partial(print, file=sys.stderr)
        return Ledger(self.config, self.table, self.folder, tell)

    @functools.cached_property
    def estimates(self) -> Estimates:
        """How long the runs will take; first asked for when the models have been smoke tested."""
        return Estimates(self.table, self.folder, self.is_warm, self.local_cores)

    def _write_config(self, config: dict[str, Any]) -> None:
        """Write a whole config, including what --config gave, for programs to read."""
        file = Path(self.folder.config(config))
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(config))

    def start(self, logger: Logger) -> None:
        """Check what can be checked before the first job, and begin to watch.

        Args:
            logger: Snakemake's.
        """
        self._check(self.local_cores)
        # Else, on a full disk, each message that cannot be written to Snakemake's log would end in
        # a traceback.
        logging.raiseExceptions = False
        if self.local_cores is not None:
            internals.start_at_once(self.workflow)
        jobs = internals.jobs_to_run(self.workflow)
        marks.date_back({mark for job in jobs for mark in job.input})
        submitted = internals.submitted_to_slurm(self.workflow, jobs)
        if self.local_cores is None and self.is_main and not submitted:
            wide = [path for path, run in self.table.runs.items() if run.nodes > 1]
            stop_at(wide[:1], "Runs over several nodes need SLURM; the first of them is")
        self.try_out_models()
        logs = os.path.realpath(self.folder.slurm_logs)
        stop_at(internals.slurm_problems(self.workflow, logs) if submitted else [], CANNOT_SUBMIT)
        journal.forget_calls(self.folder, self.name)
        results_folder.note_origin(self.files, self.folder.path)
        self._write_config(self.config)
        self._watch(jobs, logger)
        cancel = None
        if submitted:
            assert self.events
            self.events.is_submitting = True
            internals.watch_slurm(self.workflow, logs, self.events.note_state)
            cancel = internals.executor(self.workflow).cancel_pending
        stopping.finish_by_signals(self.workflow, self._note_stop, logger.warning, cancel)

    @functools.cache  # noqa: B019
    def try_out_models(self) -> None:
        """Keep other invocations out, then smoke test and time each model.

        Does nothing in an invocation that does not train: a dry run, or a submitted job.
        """
        if not (self.is_main and self.executes):
            return
        self.locked.enter_context(journal.lock(self.folder))
        if self.local_cores is not None:
            warm_start.start(f"{self.folder.path}/logs/warm_process.log")
        known = self.folder.tried_out
        command = warm_start.command(preflight.PROGRAM, self.is_warm)
        stop_at(preflight.findings(self.config, self.table, self.files, known, command))

    @property
    def executes(self) -> bool:
        """Whether jobs are going to run; known while Snakemake builds its graph, not before."""
        return internals.executes(self.workflow)

    def _note_stop(self) -> None:
        """Record that the invocation is told to stop: jobs that then end badly have not failed."""
        if self.events:
            self.events.is_told_to_stop = True

    def _watch(self, jobs: list[Job], logger: Logger) -> None:
        def paths_of(rule: str, wildcards: Wildcards) -> list[str]:
            is_training = rule in ("train", "train_several")
            return self.runs.paths(Wildcards(fromdict=dict(wildcards))) if is_training else []

        paths = [path for job in jobs for path in paths_of(job.rule.name, job.wildcards)]
        self.reported = {job.rule.name.removeprefix("report_") for job in jobs}
        record = journal.CallRecord.of_this_process(
            self.local_cores, {path: self._core_seconds(path) for path in paths}
        )
        self.journal = journal.Journal(self.folder, record)
        progress = CallProgress(self.table, paths, self.journal)
        self.open.callback(self.journal.close)
        notice = functools.partial(self._notice, progress, logger)
        self.events = Events(self.journal, paths_of, notice)
        logger.addHandler(self.events)
        self.open.callback(logger.removeHandler, self.events)
        notes = [note for name in self.table.reported for note in fit.notes(self.config, name)]
        for note in dict.fromkeys(notes):
            logger.warning(f"NOTE: {note}")
        logger.info(f"Results go to {self.folder.path}")
        if not internals.is_verbose(self.workflow):
            quiet(logger)
        foot = ProgressLine(progress, logger)
        foot.start()
        self.open.callback(foot.close)

    def _core_seconds(self, path: str) -> float:
        """Return what a run is expected to claim."""
        work = self.estimates.work(self.estimates.run_at(path))
        return work * self.table.claimed_cores(path, self.local_cores)

    def _notice(self, progress: CallProgress, logger: Logger, job: JobRecord) -> None:
        """Take note of a job that has changed its state."""
        progress.notice(job)
        if job.state == journal.FAILED and not internals.is_verbose(self.workflow):
            logger.error("\n".join(closing.failure(job)))
        elif job.state == journal.STOPPED and job.message and not self.events.is_told_to_stop:  # type: ignore[union-attr]
            logger.warning(f"  stopped: {job.title}: {job.message.splitlines()[0]}")

    def end(self) -> None:
        """Release the results folder and print the last lines, after the last job."""
        self.open.close()
        self.locked.close()
        self._say_goodbye()

    def fail(self) -> None:
        """End the invocation after a job has failed, or it was stopped.

        If it was not stopped, reports are made of the runs that have results.
        """
        self.open.close()
        is_left = internals.is_told_to_leave(self.workflow)
        if is_left and (advice := internals.executor(self.workflow).cancel()):
            print(advice, file=sys.stderr)
        if self.is_main:
            study_jobs.make_without_missing(self)
        self.locked.close()
        self._say_goodbye()

    @property
    def is_told_to_end(self) -> bool:
        """Whether a signal has told this invocation to end."""
        is_left = internals.is_told_to_leave(self.workflow)
        return is_left or internals.is_told_to_finish(self.workflow)

    def _say_goodbye(self) -> None:
        if self.is_main and self.journal:
            reported = [name for name in self.table.reported if name in self.reported]
            lines = closing.lines(self.folder, self.table, self.journal, reported)
            with contextlib.suppress(OSError):  # the terminal may have been closed
                print(*lines, sep="\n", file=sys.stderr)
