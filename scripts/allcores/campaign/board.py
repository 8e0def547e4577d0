"""What one sees of a call while it lasts: how far it is, and below it each run that is going on."""

import contextlib
import copy
import dataclasses
import logging
import sys
import threading

from tqdm import tqdm

from allcores.campaign import state
from allcores.campaign.record import Record, write_code
from allcores.campaign.state import DONE, FAILED, RUNNING, WAITING
from allcores.planning.prediction import duration

# Seconds from one look to the next: on a terminal, and where each is a line more.
EVERY, EVERY_LINE = 1.0, 30.0
MOST_RUNS = 12  # shown at once
# What is expected is thought over when so many times as many runs are done.
LEARN = 1.2
AFTER = 4.0  # seconds that tables, figures and report take


def begin(folder, table, logs, estimates, available, spread, logger):
    """Write down what a call is to do, and show how far it is.

    Args:
        folder, table: the ResultsFolder and the grid.Table of the config.
        logs: the log files of the runs that the call is to make.
        estimates: estimate.Estimates of the runs.
        available: number of cores; None: a cluster's.
        spread: whether the runs are on several machines.
        logger: Snakemake's.

    Returns:
        The Board.
    """
    runs = [run for run in table.runs.values() if folder.log(run) in logs]
    for each in table.choices.values():  # some of them will go on
        if not folder.kept(each):
            runs += [table.runs[path] for path in each.going_on if not folder.has(path)]
    look = Look(folder, table, runs, copy.copy(estimates), available, spread)
    write_code(folder, runs)
    board = Board(look, logger)
    if runs:
        board.start()
    return board


class Look:
    """What lines() says of a call now; what its runs have taken corrects what others will.

    Args:
        runs: that the call may make.
        folder, table, estimates, available, spread: as of begin().
    """

    def __init__(self, folder, table, runs, estimates, available, spread):
        self.folder, self.table, self.runs, self.estimates = folder, table, runs, estimates
        self.record = Record.of_this_process(available, spread, self.expected())
        self.record.write(folder)
        self.learned = 0  # from so many runs

    def expected(self):
        return {run.path: self.estimates.seconds(run) for run in self.runs}

    def __call__(self):
        found = state.states(self.folder, self.table, self.record)
        done = state.counts(found)[DONE]
        if not self.record.trained_since:
            since = state.first_start(self.folder, found, self.record)
            if since:
                self.note(trained_since=since)
        if done > LEARN * self.learned:
            self.learned = done
            self.estimates.read_again()
            self.note(expected=self.expected())
        return lines(found, self.table, self.record, self.record.cores)

    def note(self, **changes):
        self.record = dataclasses.replace(self.record, **changes)
        self.record.write(self.folder)


def lines(found, table, record, available, is_over=False):
    """A line on the whole call, and one for each run that is going on.

    Args:
        found: list of state.RunState.
        record: record.Record of the call; None: there was none.
        available: number of cores; None: a cluster's.
        is_over: whether no call is going on, so that nothing is left to wait for.
    """
    counts = state.counts(found)
    running = [one for one in found if one.state == RUNNING]
    busy = sum(table.runs[one.path].cores for one in running)
    told = ", ".join(f"{counts[name]} {name}" for name in (DONE, RUNNING, FAILED, WAITING))
    told += f"; {busy} of {available} cores busy" if available else f"; {busy} cores busy"
    if record and record.expected and counts[RUNNING] + counts[WAITING] and not is_over:
        left = state.seconds_left(found, table, record, available or max(1, busy))
        told += f"; about {duration(left + AFTER)} left"
    yield told
    for one in running[:MOST_RUNS]:
        loss = f", loss {one.loss}" if one.loss else ""
        yield (
            f"  epoch {one.epochs} of {table.runs[one.path].trained_epochs}{loss}, "
            f"{duration(one.elapsed)}: {one.path}"
        )
    if len(running) > MOST_RUNS:
        yield f"  and {len(running) - MOST_RUNS} more"


class Board(threading.Thread):
    """Shows lines() until it is closed: on a terminal they stay at its foot, below what is logged.

    Args:
        look: called for the lines.
        logger: whose lines go above; None: nobody's.
    """

    def __init__(self, look, logger=None):
        super().__init__(daemon=True)
        self.look, self.over, self.bars = look, threading.Event(), []
        self.stays = sys.stderr.isatty()
        for handler in logger.handlers if logger and self.stays else []:
            if isinstance(handler, logging.StreamHandler):
                handler.emit = _above(handler.emit)

    def run(self):
        while not self.over.wait(EVERY if self.stays else EVERY_LINE):
            with contextlib.suppress(OSError):  # files come and go
                self.show(list(self.look()))

    def show(self, told):
        if not self.stays:
            print(told[0], file=sys.stderr, flush=True)
            return
        while len(self.bars) < len(told):
            self.bars.append(tqdm(bar_format="{desc}", position=len(self.bars), leave=False))
        for bar, line in zip(self.bars, told + [""] * len(self.bars), strict=False):
            bar.set_description_str(line[: bar.ncols or None])

    def close(self):
        self.over.set()
        if self.is_alive():
            self.join()
        for bar in reversed(self.bars):
            bar.close()


def _above(emit):
    """A logging handler's emit() that first clears what stays at the foot of the terminal."""

    def clear_and_emit(record):
        with tqdm.external_write_mode(file=sys.stderr):
            emit(record)

    return clear_and_emit
