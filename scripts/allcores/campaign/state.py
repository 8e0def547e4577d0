"""Which runs of a config are done, running, failed or to go, from what jobs and runs record."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from allcores.campaign import journal
from allcores.data import preparation
from allcores.machine import slurm
from allcores.study import identity
from allcores.training import progress, recipes

DONE, RUNNING, FAILED, WAITING = "done", "running", "failed", "to go"
UNREACHABLE = "not reached"  # something that the run needs has failed
# The expected time counts as much as having seen this share of the work done.
TRUST = 0.05
IN_QUEUE = ("PENDING", "CONFIGURING", "REQUEUED")  # SLURM's states of a job that waits
ANY_THREADS = {"threads_per_worker": None}


@dataclass(frozen=True)
class RunState:
    """How far a run is.

    Attributes:
        path: its path, the key in the grid.Table.
        state: DONE, RUNNING, FAILED, WAITING or UNREACHABLE.
        began: when it began, in seconds since 1970; 0: that is not known.
        cores: number of cores that it occupies while it is running.
        epochs, loss: as in progress.RunProgress.
    """

    path: str
    state: str
    began: float = 0.0
    cores: int = 0
    epochs: int = 0
    loss: float | None = None

    @property
    def elapsed(self):
        """Seconds since it began."""
        return time.time() - self.began

    def share_done(self, expected, epochs):
        """The share of its work that is done.

        Args:
            expected: seconds that it is expected to take.
            epochs: number of epochs that it trains.
        """
        if self.state != RUNNING:
            return float(self.state == DONE)
        # Of the epoch that it is in, as much as its time lets expect.
        share = self.elapsed / expected if expected else 0.0
        return min(max(share, self.epochs / epochs), (self.epochs + 1) / epochs)


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
    known = {path: one for job in jobs for path, one in job.progress_of_runs().items()}
    failed = {(job.rule, job.title) for job in jobs if job.state == journal.FAILED}
    for path in folder.wanted_paths(table):
        job, run, one = job_of.get(path), table.runs[path], known.get(path)
        told, in_queue = _told(job, one), (queue or {}).get(path)
        if in_queue:
            told = WAITING if in_queue in IN_QUEUE else told if job else RUNNING
        elif told == RUNNING and (is_over or queue is not None):
            told = WAITING
        if told != RUNNING and ((told == DONE and not is_over) or is_done(path)):
            told = DONE
        elif told in (WAITING, DONE):
            is_cut_off = not in_queue and not failed.isdisjoint(_needed_by(table, run))
            told = UNREACHABLE if is_cut_off else WAITING
        began = one.began if one else job.began if job else 0.0
        epochs, loss = (one.epochs, one.loss) if one else (0, None)
        yield RunState(path, told, began, job.cores if job else run.cores, epochs, loss)


def _told(job, one):
    """The state of a run, by what its job and the run itself have recorded.

    Args:
        job: its journal.JobRecord; None: it has not begun.
        one: its progress.RunProgress; None: it has not begun, or died before it could say so.
    """
    if job is None or (one is None and len(job.runs) > 1):
        return WAITING
    # Of a run that has a job of its own Snakemake deletes what it wrote, if that failed.
    is_lost = len(job.runs) == 1 and job.state == journal.FAILED
    if one is None or one.state == progress.BEGUN or is_lost:
        return {journal.RUNNING: RUNNING, journal.FAILED: FAILED}.get(job.state, WAITING)
    return {progress.TRAINED: DONE, progress.FAILED: FAILED}.get(one.state, WAITING)


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


def seconds_left(run_states, table, call, cores, began):
    """How long the runs of a call will still take, by what they should take and have taken so far.

    Args:
        run_states: list of RunState.
        call: journal.CallRecord.
        cores: number of cores that the runs share.
        began: when the first of them began, in seconds since 1970; None: some have waited in a
            queue, and what they have taken cannot be told from that.
    """
    done = to_do = longest = 0.0  # the first two in expected core-seconds
    for one in run_states:
        run, expected = table.runs[one.path], call.expected.get(one.path, 0.0)
        is_exclusive = table.conditions[one.path].exclusive
        claimed = cores if is_exclusive else min(cores, one.cores or run.cores)
        share = one.share_done(expected, run.trained_epochs)
        done += expected * share * claimed
        if one.state in (RUNNING, WAITING):
            to_do += expected * (1 - share) * claimed
            longest = max(longest, expected * (1 - share))
    if began is None or not to_do:
        return max(to_do / cores, longest)
    # At the beginning the expected time counts more than what has been seen.
    trusted = TRUST * (done + to_do)
    pace = ((time.time() - began) * cores + trusted) / (done + trusted)
    return pace * max(to_do / cores, longest)
