"""The progress of an invocation and of its runs, from what jobs and runs have recorded."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from allcores.machine import cores
from allcores.machine.costs import duration
from allcores_study.config import grid
from allcores_study.training import progress
from allcores_study.training.progress import RunProgress
from allcores_study.watching import journal, slurm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allcores_study.config.run import Run
    from allcores_study.records.results_folder import ResultsFolder

DONE, RUNNING, FAILED, WAITING = "done", "running", "failed", "to go"
UNREACHABLE = "not reached"  # something that the run needs has failed
# The expected time weighs as much as having seen this share of the work done.
TRUST = 0.05
AFTER = 4.0  # seconds that tables, figures and report take
ASKING = 10.0  # seconds between two queries to SLURM
BAR = 20  # characters of the bar
MOST_JOBS = 12  # shown at once
IN_QUEUE = ("PENDING", "CONFIGURING", "REQUEUED")  # SLURM's states of a waiting job


@dataclass(frozen=True)
class CallSnapshot:
    """An invocation at one moment.

    Attributes:
        table: the runs of its config.
        call: its record; None if there was no invocation.
        jobs: those that have begun.
        runs: path -> RunProgress with one of the states above, see states().
        is_over: whether no invocation is running, so that there is nothing to wait for.
    """

    table: grid.Table
    call: journal.CallRecord | None
    jobs: list[journal.JobRecord]
    runs: dict[str, RunProgress]
    is_over: bool = False

    @classmethod
    def at(
        cls,
        folder: ResultsFolder,
        table: grid.Table,
        call: journal.CallRecord | None,
        jobs: list[journal.JobRecord],
        is_done: Callable[[str], bool],
        is_over: bool = False,
    ) -> CallSnapshot:
        """Return the snapshot of the latest invocation; on a cluster, this queries SLURM."""
        in_queue = queue(folder, table, jobs) if call and call.cores is None else None
        runs = states(folder, table, jobs, is_done, is_over, in_queue)
        return cls(table, call, jobs, runs, is_over and not in_queue)

    def line(self) -> str:
        """Return a line on the whole invocation."""
        counts = self._counts()
        jobs = [job for job in self.jobs if not self._training.keys().isdisjoint(job.runs)]
        busy = sum(job.cores for job in (*jobs, *self._others))
        available = self.call.cores if self.call else cores.allowed()
        parts = [f"{counts[name]} {name}" for name in (DONE, RUNNING, FAILED, WAITING)]
        parts += [f"{counts[UNREACHABLE]} {UNREACHABLE}"] if counts[UNREACHABLE] else []
        line = ", ".join(parts)
        if available:
            line += f"; {min(busy, available)} of {available} cores busy"
        if left := self._time_left(available or max(1, busy)):
            line += f"; {left}"
        for job in self._without_runs(journal.FAILED):  # last, as a terminal may cut the line
            line += f"; {' of '.join(filter(None, (job.rule, job.title)))} failed"
        return line

    def bar(self) -> str:
        """The line for the foot of a terminal, with a bar; what may be cut off comes last."""
        counts, jobs = self._counts(), self._without_runs(journal.FAILED)
        filled = BAR * counts[DONE] // max(1, len(self.runs))
        parts = [f"[{'#' * filled}{'.' * (BAR - filled)}] {counts[DONE]} of {len(self.runs)} runs"]
        parts[0] += f", {counts[RUNNING]} running"
        failed = [f"{counts[FAILED]} runs"] * bool(counts[FAILED])
        failed += [" of ".join(filter(None, (job.rule, job.title))) for job in jobs]
        parts += [f"failed: {', '.join(failed)}"] * bool(failed)
        return "; ".join(filter(None, [*parts, self.time_left]))

    @property
    def done(self) -> int:
        """The number of runs that have ended well."""
        return self._counts()[DONE]

    @property
    def time_left(self) -> str:
        """In words; "": the call is over, or nothing is known."""
        return self._time_left((self.call.cores if self.call else cores.allowed()) or 1)

    def _counts(self) -> Counter[str]:
        return Counter(one.state for one in self.runs.values())

    def _time_left(self, available: int) -> str:
        """In words; "": the call is over, or nothing is known.

        Args:
            available: number of cores that the runs share.
        """
        counts = self._counts()
        is_going_on = counts[RUNNING] + counts[WAITING] and not self.is_over
        if not (is_going_on and self.call and self.call.expected):
            return ""
        return f"about {duration(self.seconds_left(available) + AFTER)} left"

    def lines_of_jobs(self) -> list[str]:
        """Return a line for each run that is training, and for each other job."""
        shown = [self._of_run(path, one) for path, one in self._training.items()]
        shown += [f"  {job.message}, {duration(time.time() - job.began)}" for job in self._others]
        more = [f"  and {len(shown) - MOST_JOBS} more"] if len(shown) > MOST_JOBS else []
        return [*shown[:MOST_JOBS], *more]

    @property
    def _training(self) -> dict[str, RunProgress]:
        return {path: one for path, one in self.runs.items() if one.state == RUNNING}

    @property
    def _others(self) -> list[journal.JobRecord]:
        return [] if self.is_over else self._without_runs(journal.RUNNING)

    def _without_runs(self, of_state: str) -> list[journal.JobRecord]:
        return [job for job in self.jobs if job.state == of_state and not job.runs]

    def _of_run(self, path: str, one: RunProgress) -> str:
        loss = "" if one.loss is None else f", loss {one.loss:.4g}"
        epoch = f"epoch {one.epochs} of {self.table.runs[path].trained_epochs}"
        return f"  {epoch}{loss}, {duration(time.time() - one.began)}: {path}"

    def seconds_left(self, available: int) -> float:
        """Estimate how long the runs will still take, from what they should take and have taken.

        Args:
            available: number of cores that they share.
        """
        assert self.call
        done = to_do = longest = 0.0  # the first two in expected core-seconds
        cores_of = {path: job.cores for job in self.jobs for path in job.runs}
        for path, one in self.runs.items():
            run, expected = self.table.runs[path], self.call.expected.get(path, 0.0)
            is_exclusive = self.table.conditions[path].exclusive
            claimed = available if is_exclusive else cores_of.get(path, run.cores)
            claimed, share = min(available, claimed), self._share(path, expected)
            done += expected * share * claimed
            if one.state in (RUNNING, WAITING):
                to_do += expected * (1 - share) * claimed
                longest = max(longest, expected * (1 - share))
        left = max(to_do / available, longest)
        # On a cluster, the time that runs took is not known apart from how long they waited.
        if not to_do or self.call.cores is None:
            return left
        began = min([job.began for job in self.jobs if job.runs], default=time.time())
        # At the beginning the expected time counts more than what has been seen.
        trusted = TRUST * (done + to_do)
        return left * ((time.time() - began) * available + trusted) / (done + trusted)

    def _share(self, path: str, expected: float) -> float:
        """Return the share of a run that is done.

        Args:
            expected: seconds that the run should take.
        """
        one, epochs = self.runs[path], self.table.runs[path].trained_epochs
        if one.state != RUNNING:
            return float(one.state == DONE)
        # The current epoch counts by the time that has passed.
        share = (time.time() - one.began) / expected if expected else 0.0
        return min(max(share, one.epochs / epochs), (one.epochs + 1) / epochs)


def states(
    folder: ResultsFolder,
    table: grid.Table,
    jobs: list[journal.JobRecord],
    is_done: Callable[[str], bool],
    is_over: bool = False,
    queue: dict[str, str] | None = None,
) -> dict[str, RunProgress]:
    """Return path -> RunProgress, with one of the states above, of every wanted run.

    Args:
        folder, table, jobs: of the latest invocation, as in CallSnapshot.
        is_done: returns whether the results at a path exist and are intact.
        is_over: whether that invocation has ended, so that none of its jobs is running.
        queue: path -> SLURM's state, of the runs that are jobs in its queue. None if SLURM is not
            in use or does not answer: what the invocation has started then counts as running.
    """
    job_of = {path: job for job in jobs for path in job.runs}
    known = {path: one for job in jobs for path, one in job.progress_of_runs().items()}
    failed = {(job.rule, job.title) for job in jobs if job.state == journal.FAILED}
    runs = {}
    for path in folder.wanted_paths(table):
        job, one, in_queue = job_of.get(path), known.get(path), (queue or {}).get(path)
        told = reported_state(job, one)
        if in_queue:
            told = WAITING if in_queue in IN_QUEUE else told if job else RUNNING
        elif told == RUNNING and (is_over or queue is not None):
            told = WAITING
        if told != RUNNING and ((told == DONE and not is_over) or is_done(path)):
            told = DONE
        elif told in (WAITING, DONE):
            is_cut_off = not failed.isdisjoint(_needed_by(table, table.runs[path]))
            told = UNREACHABLE if is_cut_off and not in_queue else WAITING
        one = one or RunProgress("", job.began if job else 0.0)
        runs[path] = dataclasses.replace(one, state=told)
    return runs


def reported_state(job: journal.JobRecord | None, one: RunProgress | None) -> str:
    """Return the state of a run, from what its job and the run itself have recorded.

    Args:
        job: None if it has not begun.
        one: None if the run has not begun, or died before it could record anything.
    """
    if job is None or (one is None and len(job.runs) > 1):
        return WAITING
    # If the job failed, what its run recorded before is out of date.
    is_lost = len(job.runs) == 1 and job.state == journal.FAILED
    if one is None or one.state == progress.BEGUN or is_lost:
        return {journal.RUNNING: RUNNING, journal.FAILED: FAILED}.get(job.state, WAITING)
    return {progress.TRAINED: DONE, progress.FAILED: FAILED}.get(one.state, WAITING)


def _needed_by(table: grid.Table, run: Run) -> Iterator[tuple[str, str]]:
    """Yield (rule, title), as in JobRecord, of each job that a run needs before it can begin."""
    label, seed = run.dataset.label, run.seed
    yield "prepare_dataset", label
    yield "assign_folds", f"{label} {run.folds} {seed}"
    yield "assign_inner_folds", f"{label} {run.folds} {seed} {run.inner_folds}"
    yield "calibrate", f"{label} {table.family(run)} {run.recipe_group}"


def queue(
    folder: ResultsFolder, table: grid.Table, jobs: list[journal.JobRecord]
) -> dict[str, str] | None:
    """Return path -> SLURM's state of the runs that it has as jobs; None if it cannot be asked."""
    in_queue = _asked(os.path.realpath(folder.slurm_logs), time.monotonic() // ASKING)
    if in_queue is None:
        return None
    comments = {
        path: slurm.comment("train", map(str, run.wildcards.values()))
        for path, run in table.runs.items()
    }
    for job in jobs:
        if job.rule == "train_several":
            log = Path(job.log)
            wildcards = log.parent.name, log.stem
            comments |= dict.fromkeys(job.runs, slurm.comment(job.rule, wildcards))
    return {path: in_queue[text] for path, text in comments.items() if text in in_queue}


@functools.lru_cache(maxsize=1)
def _asked(logs: str, interval: float) -> dict[str, str] | None:
    """Return SLURM's answer, cached within an interval, as a query at each look is a burden."""
    return slurm.states(logs)
