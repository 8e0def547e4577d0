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
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snakemake.iocontainers import Wildcards
from snakemake.utils import update_config

from allcores.files import write_text
from allcores.machine import memory
from allcores_study import programs, yaml_files
from allcores_study.analysis import suggestions
from allcores_study.campaign import commands, slurm_jobs, stopping, study_jobs, warm_start
from allcores_study.campaign import snakemake_internals as internals
from allcores_study.campaign.data_jobs import DataJobs
from allcores_study.campaign.run_jobs import RunJobs
from allcores_study.campaign.study_jobs import FinalJob, SelectionJobs, StudyJob
from allcores_study.config import checks, fit, grid, schema, sweeps
from allcores_study.planning import choose, preflight
from allcores_study.planning.estimate import Estimates
from allcores_study.records import marks, results_folder
from allcores_study.records.results_folder import ResultsFolder
from allcores_study.watching import closing, colours, journal, slurm, why
from allcores_study.watching.closing import stop_at, unusable
from allcores_study.watching.events import Events, quiet
from allcores_study.watching.ledger import Ledger
from allcores_study.watching.progress_line import CallProgress, ProgressLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from logging import Logger

    from snakemake.jobs import Job
    from snakemake.workflow import Workflow

    from allcores_study.config.candidates import Slot
    from allcores_study.watching.journal import JobRecord, Journal

# Set by profiles/allocation.sh: how a program is started on one of several nodes, how many cores
# each has, and how many nodes there are.
LAUNCHER, NODE_CORES, NODES = "ALLCORES_LAUNCHER", "ALLCORES_NODE_CORES", "ALLCORES_NODES"
RESTARTS = "SLURM_RESTART_COUNT"
DRAWING = 4  # cores: one or two of some ten figures take long


class Call:
    """What the rules share.

    Args:
        workflow: Snakemake's.
        config: the config as Snakemake has merged it.

    Attributes:
        folder: where the results go.
        config: with strategies for each study, if these are known.
        table: the runs of the config.
        undecided: names of the studies whose strategy has to be chosen first; the table has their
            runs as if they were trained serially.
    """

    def __init__(self, workflow: Workflow, config: dict[str, Any]) -> None:
        # Snakemake keeps all jobs in memory, none of them garbage: collecting less often saves a
        # large dry run a tenth of its time; not collecting at exit saves every invocation 0.4 s.
        gc.set_threshold(200_000)
        atexit.register(gc.freeze)
        atexit.register(self._go_on)
        self.workflow, self.files = workflow, internals.config_files(workflow)
        self.is_main = internals.is_main_process(workflow)
        self.local_cores = internals.local_cores(workflow)
        self.launcher = os.environ.get(LAUNCHER, "")
        self.open = contextlib.ExitStack()
        self.journal: Journal | None = None
        self.events: Events | None = None
        self.goes_on = False
        self.given = internals.given(workflow)
        update_config(config, yaml_files.typed(internals.given_values(workflow)))
        self.merged_config = schema.defaults() | config
        try:
            name = results_folder.name_of(self.files)
        except ValueError as error:
            sys.exit(str(error))
        self.folder = ResultsFolder(f"results/{name}")
        self.name = journal.new_call(self.folder)
        if self.local_cores == 0:  # Snakemake would wait forever for a core
            sys.exit("--cores: found 0; expected a whole number from 1, or `all`")
        if self.is_main:  # else the invocation that submitted this job has checked
            self._check(*self._if_given(self.cores_of_a_run, self.nodes))
            stop_at(results_folder.foreign(self.files, self.folder.path))
            stop_at(unusable(Path(self.folder.path).absolute()))
            if os.environ.get(RESTARTS, "0") != "0":  # SLURM has queued this job again
                self._unlock()
        self._expand()
        if self.local_cores is not None and not self.launcher:
            internals.offer_memory(workflow, memory.free_mb())
        is_forked = self.warm(warm_start.TORCH) is not None and not self.launcher
        self.estimates = Estimates(self.table, self.folder, self.most_cores, is_forked)

    def _unlock(self) -> None:
        """Remove the lock that an earlier turn of this SLURM job left.

        The lock of another invocation stays.
        """
        record = journal.read_call(self.folder)
        is_own = record is None or record.batch_job == os.environ.get("SLURM_JOB_ID", "")
        if is_own or record.is_going_on is False:  # type: ignore[union-attr]
            internals.unlock(self.folder.path)

    def _if_given(self, *counts: int | None) -> tuple[int | None, ...]:
        """Return the counts, or None for each if their number may only be Snakemake's assumption.

        Snakemake assumes one core for a dry run that was given none.
        """
        has_flag = any(word.startswith(("--cores", "-c", "--jobs", "-j")) for word in sys.argv)
        return counts if self.local_cores != 1 or has_flag else (None,) * len(counts)

    def _check(self, cores: int | None, nodes: int | None) -> None:
        stop_at(checks.findings(self.merged_config, self.files, cores, nodes, commands.cores_flag))

    def _expand(self) -> None:
        """Set config, table and undecided."""
        config = sweeps.expanded(self.merged_config)
        # A job of a cluster uses what the invocation that submitted it has chosen.
        (cores,) = self._if_given(self.cores_of_a_run) if self.is_main else (None,)
        full_config = choose.with_saved(config, self.folder.plan_file(choose.FILE), cores)
        self.undecided = [] if full_config else choose.studies_of(config)
        self.config = full_config or choose.with_reference(config)
        self.table = suggestions.table(self.config, self.folder)

    @property
    def cores_of_a_run(self) -> int | None:
        """The number of cores that a run can have in this invocation; None on a cluster."""
        return int(os.environ[NODE_CORES]) if self.launcher else self.local_cores

    @property
    def most_cores(self) -> int:
        """The cores of this invocation; on a cluster, the most that a run takes on a node."""
        return self.cores_of_a_run or max(run.cores_on_node for run in self.table.runs.values())

    @property
    def cores_of_a_report(self) -> int:
        """The number of cores that draw the figures of a study; reports are made side by side."""
        cores = min(DRAWING, self.local_cores or 1)
        return max(1, cores // max(1, len(self.studies)))

    @property
    def nodes(self) -> int | None:
        """The number of nodes that a run can have in this invocation; None on a cluster."""
        if self.launcher:
            return int(os.environ[NODES])
        return 1 if self.local_cores else None

    @property
    def is_on_cluster(self) -> bool:
        """Whether jobs run elsewhere: submitted, or as steps on the nodes of an allocation."""
        return bool(self.launcher) or self.local_cores is None or not self.is_main

    @property
    def cores_flag(self) -> str:
        """The cores that a run has on each of its nodes, for the shell."""
        return "$(({threads} / {resources.nodes}))" if self.launcher else "{threads}"

    @property
    def wildcard_constraints(self) -> dict[str, str]:
        values = self.table.wildcards() | {"selection": self.table.choices}
        patterns = {
            name: "|".join(re.escape(str(value)) for value in allowed)
            for name, allowed in values.items()
        }
        numbers = dict.fromkeys(("folds", "inner", "number"), "[0-9]+")
        return patterns | numbers | {"call": "[0-9a-f]+", "made_of": marks.PATTERN}

    def warm(self, process: str) -> str | None:
        """Return the name of a warm process, if there is one: see campaign/warm_start.py."""
        return process if self.local_cores is not None and self.is_main else None

    @functools.cached_property
    def data(self) -> DataJobs:
        """What the rules of data.smk call."""
        return DataJobs(self)

    @functools.cached_property
    def runs(self) -> RunJobs:
        """What the rules of train.smk call."""
        return RunJobs(self)

    @functools.cached_property
    def selections(self) -> SelectionJobs:
        """What the rule select_candidate calls."""
        return SelectionJobs(self)

    @functools.cached_property
    def studies(self) -> list[StudyJob]:
        """What the rules of each study's report call."""
        return [StudyJob(self, study, self.table) for study in self.table.reported]

    @functools.cached_property
    def finals(self) -> list[FinalJob]:
        """What the rules of each study's final models call."""
        names = self.table.studies.keys() - {*self.table.reported}
        return [FinalJob(self, name.removesuffix(grid.FINAL), self.table) for name in sorted(names)]

    def targets(self, wildcards: Wildcards) -> list[str]:
        """Return the files of every study, and those of lost runs and data to rebuild."""
        members: Iterable[str | Slot] = self.selections.members(self.table.selections.values())
        members = dict.fromkeys((*self.table.required, *members))
        datas = (self.ledger.data(run) for run in self.table.runs.values())
        data = {mark for marks_of_run in datas for mark in marks_of_run}
        # A report's mark brings all that its rule makes; a valid report may have no mark.
        reports = [job.mark or job.page for job in (*self.studies, *self.finals)]
        return [*self.runs.request(members), *sorted(data), *reports]

    @functools.cached_property
    def ledger(self) -> Ledger:
        """The Ledger of the results."""
        tell = functools.partial(print, file=sys.stderr)
        cores, is_spread = self.most_cores, self.is_on_cluster
        return Ledger(self.config, self.table, self.folder, cores, is_spread, tell)

    @functools.cache  # noqa: B019
    def choose(self) -> None:
        """Decide `auto` where it is undecided and start snakemake again; a dry run prints a note.

        Data are prepared without this, as the decision may need them.
        """
        if not self.undecided or internals.ends_with(self.workflow, "prepare_dataset"):
            return
        if not self.executes:
            what = "`auto` is decided when training begins; until then its runs are shown as serial"
            print(f"NOTE: {what}", file=sys.stderr)
            return
        if self.local_cores is None:
            files = " ".join(os.path.relpath(file) for file in self.files)
            plan = f"{programs.plan()} --configfile {files} --cores N"
            stop_at([f"`strategies: [auto]`: first run {plan}, with N the cores of a node"])
        self.try_out_models()
        print("Choosing a strategy for `auto`: timing each one", file=sys.stderr, flush=True)
        self._write_config(self.merged_config)
        command = [
            *warm_start.command(choose.PROGRAM, None),
            *["--choose", self.folder.path, "--cores", self.most_cores],
            *["--configfile", self.folder.config(self.merged_config)],
        ]
        # If this process is killed while it waits, plan.py ends by itself.
        if subprocess.Popen(list(map(str, command))).wait():
            sys.exit(1)
        config, file = sweeps.expanded(self.merged_config), self.folder.plan_file(choose.FILE)
        if not choose.with_saved(config, file, self.cores_of_a_run):
            sys.exit(f"{file} has no strategy for `auto` with this config")
        self.goes_on = True
        sys.exit(0)

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
        self._check(self.cores_of_a_run, self.nodes)
        # Else, on a full disk, each message that cannot be written to Snakemake's log would end in
        # a traceback.
        logging.raiseExceptions = False
        if self.local_cores is not None:
            internals.start_at_once(self.workflow)
        jobs = internals.jobs_to_run(self.workflow)
        marks.date_back({mark for job in jobs for mark in job.input})
        self.ledger.mark_what_is_there()
        submitted = internals.submitted_to_slurm(self.workflow, jobs)
        if submitted:
            logs = os.path.realpath(self.folder.slurm_logs)
            slurm_jobs.take_over(self.workflow, submitted, logs, logger, self._has_results)
        elif self.local_cores is None and self.is_main:
            wide = [path for path, run in self.table.runs.items() if run.nodes > 1]
            stop_at(wide[:1], "Runs over several nodes need SLURM; the first of them is")
        self.try_out_models()
        stop_at(list(self.runs.too_large()), "These runs do not fit into memory")
        stop_at(list(slurm.hopeless(submitted)), "SLURM would never start these jobs")
        journal.forget_calls(self.folder, self.name)
        results_folder.note_origin(self.files, self.folder.path)
        self._write_config(self.config)
        self._watch(jobs, logger)
        is_local = self.local_cores is not None
        cancel = None if is_local else functools.partial(slurm_jobs.cancel_pending, self.workflow)
        stopping.finish_by_signals(self.workflow, self._note_stop, logger.warning, cancel)

    def _hold(self) -> None:
        """Keep other invocations out of the results folder; start again after one that ran."""
        if lock := journal.lock_or_wait(self.folder):
            self.open.enter_context(lock)
            return
        self.goes_on = True
        sys.exit(0)

    @functools.cache  # noqa: B019
    def try_out_models(self) -> None:
        """Keep other invocations out, then smoke test and time each model.

        Does nothing in an invocation that does not train: a dry run, or a submitted job.
        """
        if not (self.is_main and self.executes):
            return
        self._hold()
        if self.local_cores is not None:
            self._warm_up()
        known = self.folder.tried_out
        command = warm_start.command(preflight.PROGRAM, self.warm(warm_start.TORCH))
        stop_at(preflight.findings(self.config, self.table, self.files, known, command))
        self.estimates.read_again()  # the models have been timed now

    @property
    def executes(self) -> bool:
        """Whether jobs are going to run; known while Snakemake builds its graph, not before."""
        return internals.executes(self.workflow)

    def _note_stop(self) -> None:
        """Record that the invocation is told to stop: jobs that then end badly have not failed."""
        if self.events:
            self.events.is_told_to_stop = True

    def _has_results(self, job: Job) -> bool:
        """Return whether the results of a job's runs exist, and are what is asked for."""
        paths = self._of_training(self.runs.paths_of_job, job.rule.name, job.wildcards)
        if not paths or not all(map(self.ledger.is_up_to_date, paths)):
            return False
        marks.put_all(job.output)  # the job may have been ended just before it did so
        return True

    def _of_training(
        self, paths: Callable[[Wildcards], Iterable[str]], rule: str, wildcards: Wildcards
    ) -> list[str]:
        """Return what a function of RunJobs returns for a job; [] if it trains no runs."""
        is_training = rule in ("train", "train_several")
        return list(paths(Wildcards(fromdict=dict(wildcards)))) if is_training else []

    def _warm_up(self) -> None:
        # Datasets come first, and PANDAS prepares them: it imports while TORCH smoke tests models.
        prepares = not all(Path(self.folder.data(run)).exists() for run in self.table.runs.values())
        logs = f"{self.folder.path}/logs/warm_process"
        warm_start.start(warm_start.TORCH, f"{logs}_{warm_start.TORCH}.log")
        warm_start.start(warm_start.PANDAS, f"{logs}_{warm_start.PANDAS}.log", at_once=prepares)

    def _watch(self, jobs: list[Job], logger: Logger) -> None:
        possible = functools.partial(self._of_training, self.runs.paths_possible)
        paths = {path for job in jobs for path in possible(job.rule.name, job.wildcards)}
        runs = [self.table.runs[path] for path in self.table.runs if path in paths]
        why.write_code(self.folder, runs)
        progress = CallProgress(self.folder, self.table, runs, self.estimates)
        record = journal.CallRecord.of_this_process(
            self.local_cores, self.is_on_cluster, progress.expected()
        )
        self.journal = progress.journal = journal.Journal(self.folder, record)
        self.open.callback(self.journal.close)
        notice = functools.partial(self._notice, progress, logger)
        to_train = functools.partial(self._of_training, self.runs.paths_to_train)
        self.events = Events(self.journal, to_train, notice)
        logger.addHandler(self.events)
        self.open.callback(logger.removeHandler, self.events)
        notes = [note for name in self.table.reported for note in fit.notes(self.config, name)]
        for note in dict.fromkeys(notes):
            logger.warning(f"NOTE: {note}")
        for line in [] if self.undecided else choose.report_lines(self.config):
            logger.info(line)
        logger.info(f"Results go to {self.folder.path}")
        if not internals.is_verbose(self.workflow):
            quiet(logger)
        foot = ProgressLine(progress, logger)
        foot.start()
        self.open.callback(foot.close)

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
        self._say_goodbye()

    def _go_on(self) -> None:
        """Replace this process by the same invocation, if self.goes_on.

        This comes last at exit, as it was registered first.
        """
        if self.goes_on:
            os.execv(sys.executable, [sys.executable, "-m", "snakemake", *sys.argv[1:]])

    def fail(self) -> None:
        """End the invocation after a job has failed, or it was stopped.

        If it was not stopped, reports are made of the runs that have results.
        """
        self.open.close()
        if is_left := internals.is_told_to_leave(self.workflow):
            slurm_jobs.cancel(self.workflow)
        is_stopped = is_left or internals.is_told_to_finish(self.workflow)
        if not is_stopped and self.is_main:
            study_jobs.make_without_missing(self)
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self.is_main:
            lines = closing.lines(self.folder, self.table, self.journal)
            with contextlib.suppress(OSError):  # the terminal may have been closed
                print(*colours.with_red_failures(lines, sys.stderr), sep="\n", file=sys.stderr)
