"""The progress of an invocation and of its runs, from what jobs and runs have recorded."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tqdm import tqdm

from allcores.machine.costs import duration
from allcores_study.training import progress
from allcores_study.training.progress import RunProgress
from allcores_study.watching import journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allcores_study.config.grid import Table

DONE, RUNNING, FAILED, WAITING = "done", "running", "failed", "to go"
MOST_JOBS = 12  # shown at once


@dataclass(frozen=True)
class CallSnapshot:
    """An invocation at one moment.

    Attributes:
        table: the runs of its config.
        call: its record; None if there was no invocation.
        jobs: those that were started or submitted.
        runs: path -> RunProgress with one of the states above, see states().
        is_over: whether no invocation is running, so that there is nothing to wait for.
    """

    table: Table
    call: journal.CallRecord | None
    jobs: list[journal.JobRecord]
    runs: dict[str, RunProgress]
    is_over: bool = False

    def _counts(self) -> Counter[str]:
        return Counter(one.state for one in self.runs.values())

    def line(self, width: int | None = None) -> str:
        """Return a line on the whole invocation.

        Args:
            width: of a terminal: with a bar that fills the line, which is cut there.
        """
        counts, failed = self._counts(), self._without_runs(journal.FAILED)
        parts = [", ".join(f"{counts[name]} {name}" for name in (DONE, RUNNING, FAILED, WAITING))]
        parts += [f"{' of '.join(filter(None, (job.rule, job.title)))} failed" for job in failed]
        format, left = "; ".join(parts), self._left()
        if left is not None:
            format += "; {remaining} left"
        done, total, rate = left or (counts[DONE], max(1, len(self.runs)), None)
        if width:
            format = f"{{bar:20}} {format}"
        return tqdm.format_meter(
            done, total, elapsed=1.0, ncols=width, bar_format=format, rate=rate
        )

    def _left(self) -> tuple[float, float, float] | None:
        """Return core-seconds done and in all, by expectation, and how many are done per second.

        None: the invocation is over, or nothing is known.
        """
        counts = self._counts()
        if self.is_over or not self.call or not counts[RUNNING] + counts[WAITING]:
            return None
        expected = self.call.expected
        known = [path for path in self.runs if path in expected]
        done = sum(expected[path] * self._share(path) for path in known)
        earlier = sum(expected[path] * self._share_of_epochs(path, "resumed") for path in known)
        total = sum(expected[path] for path in known)
        if not total:
            return None
        began = min([job.began for job in self.jobs if job.runs], default=time.time())
        passed = time.time() - began
        # Before anything is done, what it was expected to take is all that is known.
        now = done - earlier
        rate = now / passed if now > 0 and passed > 0 else float(self.call.cores or 1)
        return done, total, rate

    def _share(self, path: str) -> float:
        """Return the share of a run that is done; within an epoch, by expectation."""
        one = self.runs[path]
        if one.state != RUNNING or self.call is None:
            return float(one.state == DONE)
        cores = self.table.claimed_cores(path, self.call.cores)
        spent = (time.time() - one.began) * cores / self.call.expected[path]
        spent += self._share_of_epochs(path, "resumed")
        done, epoch = self._share_of_epochs(path, "epochs"), 1 / self._epochs(path)
        return min(1.0, max(done, min(spent, done + epoch)))

    def _share_of_epochs(self, path: str, which: str) -> float:
        return getattr(self.runs[path], which) / self._epochs(path)

    def _epochs(self, path: str) -> int:
        """Return how many epochs a run has; a chosen one says so once it has begun."""
        return self.runs[path].most or self.table.runs[path].epochs

    def lines_of_jobs(self) -> list[str]:
        """Return a line for each run that is training, and for each other job."""
        training = {path: one for path, one in self.runs.items() if one.state == RUNNING}
        others = [] if self.is_over else self._without_runs(journal.RUNNING)
        shown = [self._of_run(path, one) for path, one in training.items()]
        shown += [f"  {job.message}, {duration(time.time() - job.began)}" for job in others]
        more = [f"  and {len(shown) - MOST_JOBS} more"] if len(shown) > MOST_JOBS else []
        return [*shown[:MOST_JOBS], *more]

    def _without_runs(self, of_state: str) -> list[journal.JobRecord]:
        return [job for job in self.jobs if job.state == of_state and not job.runs]

    def _of_run(self, path: str, one: RunProgress) -> str:
        loss = "" if one.loss is None else f", loss {one.loss:.4g}"
        epoch = f"epoch {one.epochs} of {self._epochs(path)}"
        return f"  {epoch}{loss}, {duration(time.time() - one.began)}: {path}"


def states(
    paths: Iterable[str],
    jobs: list[journal.JobRecord],
    is_done: Callable[[str], bool],
    is_over: bool = False,
) -> dict[str, RunProgress]:
    """Return path -> RunProgress, with one of the states above, of runs.

    Args:
        jobs: of the latest invocation.
        is_done: returns whether the results at a path exist and are intact.
        is_over: whether that invocation has ended, so that none of its jobs is running.
    """
    job_of = {path: job for job in jobs for path in job.runs}
    known = {path: one for job in jobs for path, one in job.progress_of_runs().items()}
    runs = {}
    for path in paths:
        job, one = job_of.get(path), known.get(path)
        told = reported_state(job, one)
        if told == RUNNING and is_over:
            told = WAITING
        if told != RUNNING:
            is_made = (told == DONE and not is_over) or is_done(path)
            told = DONE if is_made else WAITING if told == DONE else told
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
