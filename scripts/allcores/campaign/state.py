"""Which runs of a config are done, running, failed or to go."""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from allcores.campaign import journal
from allcores.data import preparation
from allcores.machine import slurm
from allcores.study import identity
from allcores.training import recipes

DONE, RUNNING, FAILED, WAITING = "done", "running", "failed", "to go"
UNREACHABLE = "not reached"  # something that the run needs has failed
# The expected time counts as much as having seen this share of the work done.
TRUST = 0.05
# What a run that was told to stop says in its log.
GOES_ON = "the same call goes on"
# What a job of several runs says of each: see stacking/several.py.
TOLD = re.compile(r"^(begun|trained|failed): (\S+)", re.MULTILINE)
STATE_TOLD = {"begun": RUNNING, "trained": DONE, "failed": FAILED}
ANY_THREADS = {"threads_per_worker": None}
EPOCH = re.compile(r"^epoch (\d+)/(\d+)  loss (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class RunState:
    """How far a run is.

    Attributes:
        path: its path, the key in the grid.Table.
        state: DONE, RUNNING, FAILED, WAITING or UNREACHABLE.
        began: when it began, in seconds since 1970; 0: that is not known.
        cores: number of cores that it occupies while it is running.
        log: the log of its job; "": there is none.
    """

    path: str
    state: str
    began: float = 0.0
    cores: int = 0
    log: str = ""

    @property
    def elapsed(self):
        """Seconds since it began."""
        return time.time() - self.began


def states(folder, table, jobs, is_done, is_over=False, queue=None):
    """The RunState of every run of a grid.Table that is wanted.

    Args:
        folder: the ResultsFolder.
        jobs: the journal.Jobs of the latest call.
        is_done: function of a path that says whether its results are there and intact.
        is_over: whether that call has ended, so that none of its jobs is running.
        queue: path -> SLURM's state, of the runs that are jobs in its queue; None: SLURM is not in
            use or cannot be asked, and what the call has started counts as running.
    """
    job_of = {path: job for job in jobs for path in job.runs}
    told_by = {job.log: told(job.log) for job in jobs if len(job.runs) > 1}
    failed = {(job.rule, job.title) for job in jobs if job.state == journal.FAILED}
    for path in folder.wanted_paths(table):
        job = job_of.get(path)
        own = told_by.get(job.log, {}).get(path, WAITING) if job and len(job.runs) > 1 else None
        if queue and path in queue:
            began, cores = (job.since, job.cores) if job else (0.0, table.runs[path].cores)
            is_waiting = queue[path] in ("PENDING", "CONFIGURING", "REQUEUED")
            yield RunState(path, WAITING if is_waiting else own or RUNNING, began, cores, _log(job))
        elif job and job.state == journal.RUNNING and not is_over and queue is None:
            yield RunState(path, own or RUNNING, job.began, job.cores, job.log)
        elif (own == DONE and not is_over) or is_done(path):
            yield RunState(path, DONE)
        elif job and job.state == journal.FAILED and own != WAITING:
            yield RunState(path, FAILED, job.began)
        elif not failed.isdisjoint(_needed_by(table, table.runs[path])):
            yield RunState(path, UNREACHABLE)
        else:
            yield RunState(path, WAITING)


def _log(job):
    return job.log if job else ""


def told(log):
    """Path -> RUNNING, DONE or FAILED, of the runs that the job with this log has begun."""
    return {path: STATE_TOLD[word] for word, path in TOLD.findall(text_of(log))}


def _needed_by(table, run):
    """(rule, title) of each job, as in journal.JobRecord, without which a Run cannot begin."""
    label, seed = run.dataset.label, run.seed
    yield "choose", ""
    yield "prepare_dataset", label
    yield "assign_folds", f"{label} {run.folds} {seed}"
    yield "assign_inner_folds", f"{label} {run.folds} {seed} {run.inner_folds}"
    yield "calibrate", f"{label} {table.family(run)} {run.measured}"


def queue(folder, table, jobs):
    """Path -> SLURM's state, of the runs that it has as jobs; None: it cannot be asked."""
    in_queue = slurm.states(os.path.realpath(folder.slurm_logs))
    if in_queue is None:
        return None
    comments = {
        path: slurm.comment("train", map(str, run.wildcards.values()))
        for path, run in table.runs.items()
    }
    for job in jobs:
        if len(job.runs) > 1:
            comments |= dict.fromkeys(job.runs, slurm.comment(job.rule, job.title.split()))
    return {path: in_queue[text] for path, text in comments.items() if text in in_queue}


class Current:
    """Says whether the results at a path are there, intact, and what a grid.Table asks for now.

    Nothing else decides whether a run is trained: neither the times of files nor Snakemake's
    records.
    """

    def __init__(self, folder, table):
        self.folder, self.table = folder, table
        folder.store.read_again()
        self.data_made_of = {}  # label of a dataset -> what it is made of

    def __call__(self, path):
        run, record = self.table.runs[path], self.folder.record(path)
        return (
            record is not None
            and not self.folder.damaged_file(path)
            and record.is_current(self.made_of(run))
            and self.has_what_is_asked(run, record)
            and self.recipe_differs(run, record) is None
        )

    def made_of(self, run, known=None):
        """See identity.made_of().

        Args:
            known: what was known before its data; None: what is known now.
        """
        label = run.dataset.label
        if label not in self.data_made_of:
            self.data_made_of[label] = preparation.made_of(run.dataset)
        return identity.made_of(known or identity.before_data(run), self.data_made_of[label])

    def has_what_is_asked(self, run, record):
        """Whether the record.Record of a run's results has its Conditions."""
        return self.table.conditions[run.path].are_met_by(record.content["conditions"])

    def recipe_differs(self, run, record):
        """(how a run with `auto` has computed, how it would compute now), if that is not the same,
        else None. The number of threads does not count: it depends on the cores of a call."""
        if not run.has_auto:
            return None
        file = Path(self.folder.recipe_of(run, self.table))
        files = [file, *file.parent.glob(f"{file.stem}_{'[0-9a-f]' * 8}.json")]
        before = record.content["recipe"] | ANY_THREADS
        recipes_now = [
            recipes.fill_in(run, file, run.cores_on_node).recipe | ANY_THREADS
            for file in files
            if recipes.processor_of(file) == record.content["processor"]
        ]
        return (before, recipes_now[0]) if recipes_now and before not in recipes_now else None


def was_stopped(job):
    """Whether a journal.JobRecord ended because it was told to: it has not failed."""
    log = text_of(job.log)
    # The latter: by Ctrl-C, before it could say so itself.
    return GOES_ON in log.rpartition("train.py:")[2] or log.rstrip().endswith("KeyboardInterrupt")


def epochs_of(log):
    """(number of whole epochs, loss of the last one as a text), from a log."""
    matches = EPOCH.findall(TOLD.split(text_of(log))[-1])  # of several runs, of the latest
    return (int(matches[-1][0]), matches[-1][2]) if matches else (0, "")


def text_of(log):
    """What is in a log; "": there is none."""
    try:
        return Path(log).read_text(errors="replace")
    except OSError:
        return ""


def seconds_left(run_states, folder, table, call, available, began):
    """How long the runs of a call will still take, by what they should take and have taken so far.

    Args:
        began: when the first of them began, in seconds since 1970; None: some have waited in a
            queue, and what they have taken cannot be told from that.
    """
    done = to_do = longest = 0.0  # the first two in expected core-seconds
    for run_state in run_states:
        run = table.runs[run_state.path]
        remaining = expected = call.expected.get(run_state.path, 0.0)
        claimed = min(available, run_state.cores or run.cores)
        if table.conditions[run_state.path].exclusive:
            claimed = available
        if run_state.state == RUNNING:
            epochs = epochs_of(run_state.log)[0]
            # Of the epoch that it is in, as much as its time lets expect.
            share = run_state.elapsed / expected if expected else 0.0
            share = min(max(share, epochs / run.trained_epochs), (epochs + 1) / run.trained_epochs)
            remaining *= 1 - share
        elif run_state.state == DONE:
            remaining = 0.0
        done += (expected - remaining) * claimed
        if run_state.state in (RUNNING, WAITING):
            to_do += remaining * claimed
            longest = max(longest, remaining)
    if began is None:
        return max(to_do / available, longest)
    # At the beginning the expected time counts more than what has been seen.
    trusted = TRUST * (done + to_do)
    spent = (time.time() - began) * available
    return (spent + trusted) / (done + trusted) * max(to_do / available, longest) if to_do else 0.0
