"""What is shown of a call while it lasts: how far it is, and below it each running job."""

import contextlib
import copy
import math
import sys
import threading
import time
from collections import Counter

from tqdm import tqdm

from allcores.campaign import journal, state
from allcores.campaign.events import is_of_terminal
from allcores.campaign.state import DONE, FAILED, RUNNING, UNREACHABLE, WAITING
from allcores.planning.prediction import duration

# Seconds between two looks: on a terminal, and where each look prints another line; and the share
# of a core's time that looking may take.
EVERY, EVERY_LINE, SHARE = 1.0, 30.0, 0.02
MOST_JOBS = 12  # shown at once
# The estimates are corrected whenever this many times as many runs are done.
LEARN = 1.2
AFTER = 4.0  # seconds that tables, figures and report take
ASKING = 10.0  # seconds between two questions to SLURM


class CallProgress:
    """The lines() of a call now; the time that its runs have taken corrects what others will take.

    Args:
        folder: the ResultsFolder.
        table: the grid.Table of its config.
        runs: Runs that the call may train.
        estimates: estimate.Estimates of them.
        available: number of cores; None: on a cluster.

    Attributes:
        journal: journal.Journal of the call, set when it begins.
    """

    def __init__(self, folder, table, runs, estimates, available):
        self.folder, self.table, self.runs, self.available = folder, table, runs, available
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
        if job.rule == "calibrate" and job.state == journal.FINISHED:
            self.is_news = True

    def is_done(self, path):
        """Whether a run is done: it has ended in this call, or did not have to be trained."""
        return path in self.finished or path not in self.to_make

    def __call__(self):
        if self.is_news or len(self.finished) > LEARN * self.learned:
            self.learned, self.is_news = len(self.finished), False
            self.estimates.read_again()
            self.journal.expect(self.expected())
        jobs = list(self.journal.jobs.values())
        if self.available is None and time.monotonic() - self.asked > ASKING:
            self.queue = state.queue(self.folder, self.table, jobs)
            self.asked = time.monotonic()
        run_states = list(
            state.states(self.folder, self.table, jobs, self.is_done, queue=self.queue)
        )
        return list(
            lines(run_states, jobs, self.folder, self.table, self.journal.call, self.available)
        )


def lines(run_states, jobs, folder, table, call, available, is_over=False):
    """A line on the whole call, and one for each job that is running.

    Args:
        run_states: list of state.RunState.
        jobs: journal.Jobs of the call.
        call: journal.CallRecord; None: there was none.
        available: number of cores; None: on a cluster.
        is_over: whether no call is going on, so that there is nothing to wait for.
    """
    counts = Counter(run_state.state for run_state in run_states)
    training = [run_state for run_state in run_states if run_state.state == RUNNING]
    others = [job for job in jobs if job.state == journal.RUNNING and not job.runs]
    others = [] if is_over else others
    busy = sum(run_state.cores for run_state in training) + sum(job.cores for job in others)
    parts = [f"{counts[name]} {name}" for name in (DONE, RUNNING, FAILED, WAITING)]
    parts += [f"{counts[UNREACHABLE]} {UNREACHABLE}"] if counts[UNREACHABLE] else []
    failed = [job for job in jobs if job.state == journal.FAILED and not job.runs]
    parts += [f"{' of '.join(filter(None, (job.rule, job.title)))} failed" for job in failed]
    line = ", ".join(parts)
    line += f"; {min(busy, available)} of {available} cores busy" if available else ""
    if call and call.expected and counts[RUNNING] + counts[WAITING] and not is_over:
        began = min([job.began for job in jobs if job.runs], default=time.time())
        began = began if available else None
        cores = available or max(1, busy)
        seconds = state.seconds_left(run_states, folder, table, call, cores, began)
        line += f"; about {duration(seconds + AFTER)} left"
    yield line
    shown = [_training(run_state, table) for run_state in training]
    shown += [f"  {job.message}, {duration(time.time() - job.began)}" for job in others]
    yield from shown[:MOST_JOBS]
    if len(shown) > MOST_JOBS:
        yield f"  and {len(shown) - MOST_JOBS} more"


def _training(run_state, table):
    run = table.runs[run_state.path]
    epochs, loss = state.epochs_of(run_state.log)
    loss_text = f", loss {loss}" if loss else ""
    epoch = f"epoch {epochs} of {run.trained_epochs}"
    return f"  {epoch}{loss_text}, {duration(run_state.elapsed)}: {run_state.path}"


class Board(threading.Thread):
    """Shows lines until it is closed: on a terminal they stay at the bottom, below what is logged.

    Args:
        look: function that returns the lines.
        logger: its messages are printed above the lines; None: there are no messages.
    """

    def __init__(self, look, logger=None):
        super().__init__(daemon=True)
        self.look, self.over, self.bars = look, threading.Event(), []
        self.is_on_terminal = sys.stderr.isatty()
        for handler in logger.handlers if logger and self.is_on_terminal else []:
            if is_of_terminal(handler):
                handler.emit = _above(handler.emit)

    def run(self):
        pause = interval = EVERY if self.is_on_terminal else EVERY_LINE
        while not self.over.wait(pause):
            began = time.perf_counter()
            with contextlib.suppress(OSError):  # files come and go
                self.show(self.look())
            pause = max(interval, (time.perf_counter() - began) / SHARE)

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
