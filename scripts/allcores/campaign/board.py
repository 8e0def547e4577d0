"""What is shown of a call while it lasts: how far it is, and below it each running job."""

import contextlib
import copy
import math
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass

from tqdm import tqdm

from allcores.campaign import journal, state
from allcores.campaign.events import is_of_terminal
from allcores.campaign.state import DONE, FAILED, RUNNING, UNREACHABLE, WAITING
from allcores.planning.prediction import duration
from allcores.study import grid

# Seconds between two looks: on a terminal, and where each look prints another line; and the share
# of a core's time that looking may take.
EVERY, EVERY_LINE, SHARE = 1.0, 30.0, 0.02
MOST_JOBS = 12  # shown at once
# The estimates are corrected whenever this many times as many runs are done.
LEARN = 1.2
AFTER = 4.0  # seconds that tables, figures and report take
ASKING = 10.0  # seconds between two questions to SLURM


@dataclass(frozen=True)
class Look:
    """A call as it is at one moment.

    Attributes:
        table: the grid.Table of its config.
        call: its journal.CallRecord; None: there was none.
        jobs: its journal.JobRecords.
        runs: the state.RunState of each run that is wanted.
        cores: number of cores that its runs share; None: on a cluster.
        is_over: whether no call is going on, so that there is nothing to wait for.
    """

    table: grid.Table
    call: journal.CallRecord | None
    jobs: list
    runs: list
    cores: int | None
    is_over: bool = False

    def lines(self):
        """A line on the whole call, and one for each job that is running."""
        counts = Counter(one.state for one in self.runs)
        training = [one for one in self.runs if one.state == RUNNING]
        running = [job for job in self._without_runs(journal.RUNNING) if not self.is_over]
        parts = [f"{counts[name]} {name}" for name in (DONE, RUNNING, FAILED, WAITING)]
        parts += [f"{counts[UNREACHABLE]} {UNREACHABLE}"] if counts[UNREACHABLE] else []
        for job in self._without_runs(journal.FAILED):
            parts.append(f"{' of '.join(filter(None, (job.rule, job.title)))} failed")
        busy = sum(one.cores for one in (*training, *running))
        line = ", ".join(parts)
        if self.cores:
            line += f"; {min(busy, self.cores)} of {self.cores} cores busy"
        is_going_on = counts[RUNNING] + counts[WAITING] and not self.is_over
        if is_going_on and self.call and self.call.expected:
            began = min([job.began for job in self.jobs if job.runs], default=time.time())
            cores, began = (self.cores, began) if self.cores else (max(1, busy), None)
            seconds = state.seconds_left(self.runs, self.table, self.call, cores, began)
            line += f"; about {duration(seconds + AFTER)} left"
        shown = [*map(self._training, training)]
        shown += [f"  {job.message}, {duration(time.time() - job.began)}" for job in running]
        more = len(shown) - MOST_JOBS
        return [line, *shown[:MOST_JOBS], *([f"  and {more} more"] if more > 0 else [])]

    def _without_runs(self, of_state):
        return [job for job in self.jobs if job.state == of_state and not job.runs]

    def _training(self, one):
        loss = "" if one.loss is None else f", loss {one.loss:.4g}"
        epoch = f"epoch {one.epochs} of {self.table.runs[one.path].trained_epochs}"
        return f"  {epoch}{loss}, {duration(one.elapsed)}: {one.path}"


class CallProgress:
    """The lines of a call now; the time that its runs have taken corrects what others will take.

    Args:
        folder: the ResultsFolder.
        table: the grid.Table of its config.
        runs: Runs that the call may train.
        estimates: estimate.Estimates of them.

    Attributes:
        journal: journal.Journal of the call, set when it begins.
    """

    def __init__(self, folder, table, runs, estimates):
        self.folder, self.table, self.runs = folder, table, runs
        self.estimates = copy.copy(estimates)
        self.to_make = {run.path for run in runs}
        self.finished, self.learned, self.is_news = set(), 0, False
        self.queue, self.asked = None, -math.inf

    def expected(self):
        """Path of each run -> seconds that it is expected to take."""
        return {run.path: self.estimates.seconds(run) for run in self.runs}

    def notice(self, job):
        """Take in a journal.JobRecord that has changed its state."""
        if job.state == journal.FINISHED:
            self.finished.update(job.runs)
            self.is_news |= job.rule == "calibrate"

    def is_done(self, path):
        """Whether a run is done: it has ended in this call, or did not have to be trained."""
        return path in self.finished or path not in self.to_make

    def __call__(self):
        if self.is_news or len(self.finished) > LEARN * self.learned:
            self.learned, self.is_news = len(self.finished), False
            self.estimates.read_again()
            self.journal.expect(self.expected())
        jobs, call = list(self.journal.jobs.values()), self.journal.call
        if call.cores is None and time.monotonic() - self.asked > ASKING:
            self.queue = state.queue(self.folder, self.table, jobs)
            self.asked = time.monotonic()
        runs = state.states(self.folder, self.table, jobs, self.is_done, queue=self.queue)
        return Look(self.table, call, jobs, list(runs), call.cores).lines()


class Board(threading.Thread):
    """Shows lines until it is closed: on a terminal they stay at the bottom, below what is logged.

    Args:
        look: function that returns the lines.
        logger: its messages are printed above the lines; None: there are no messages.
        interval: seconds between two looks where there is no terminal.

    Attributes:
        over: event that ends it.
    """

    def __init__(self, look, logger=None, interval=EVERY_LINE):
        super().__init__(daemon=True)
        self.look, self.over, self.bars = look, threading.Event(), []
        self.is_on_terminal = sys.stderr.isatty()
        self.interval = EVERY if self.is_on_terminal else interval
        for handler in logger.handlers if logger and self.is_on_terminal else []:
            if is_of_terminal(handler):
                handler.emit = _above(handler.emit)

    def run(self):
        pause = self.interval
        while not self.over.wait(pause):
            began = time.perf_counter()
            with contextlib.suppress(OSError):  # files come and go
                self.show(self.look())
            pause = max(self.interval, (time.perf_counter() - began) / SHARE)

    def show(self, shown):
        """Show these lines instead of the previous ones."""
        if not self.is_on_terminal:
            print(shown[0], file=sys.stderr, flush=True)
            return
        while len(self.bars) < len(shown):
            self.bars.append(tqdm(bar_format="{desc}", position=len(self.bars), leave=False))
        for bar, line in zip(self.bars, shown + [""] * len(self.bars), strict=False):
            bar.set_description_str(line[: bar.ncols or None])

    def close(self):
        self.over.set()
        if self.is_alive():
            self.join()
        for bar in reversed(self.bars):
            bar.close()


def _above(emit):
    """A logging handler's emit() that first clears the lines at the bottom of the terminal."""

    def clear_and_emit(record):
        with tqdm.external_write_mode(file=sys.stderr):
            emit(record)

    return clear_and_emit
