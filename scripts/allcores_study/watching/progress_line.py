"""The line at the foot of the terminal that shows the progress of an invocation."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import re
import sys
import threading
import time
from typing import TYPE_CHECKING

from tqdm import tqdm

from allcores_study.watching import colours, journal, state
from allcores_study.watching.events import is_of_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from allcores_study.config.grid import Table
    from allcores_study.config.run import Run
    from allcores_study.planning.estimate import Estimates
    from allcores_study.records.results_folder import ResultsFolder
    from allcores_study.watching.journal import JobRecord, Journal

# Seconds between two updates: on a terminal, and where each update prints another line. Then the
# share of a core's time that updates may take.
EVERY, EVERY_LINE, SHARE_OF_TIME = 1.0, 30.0, 0.02
# The estimates are corrected each time the number of finished runs has grown by this factor.
LEARN = 1.2


class CallProgress:
    """The progress line of an invocation, with estimates corrected by the runs that have ended.

    Args:
        folder: where the results are.
        table: the runs of the config.
        runs: those that the invocation may train.
        estimates: of how long these take.

    Attributes:
        journal: of the invocation; set when it begins.
    """

    journal: Journal

    def __init__(
        self, folder: ResultsFolder, table: Table, runs: list[Run], estimates: Estimates
    ) -> None:
        self.folder, self.table, self.runs = folder, table, runs
        self.estimates = copy.copy(estimates)
        self.to_make = {run.path for run in runs}
        self.finished: set[str] = set()
        self.learned = 0

    def expected(self) -> dict[str, float]:
        """Return path of each run -> seconds that it is expected to take."""
        return {run.path: self.estimates.seconds(run) for run in self.runs}

    def notice(self, job: JobRecord) -> None:
        """Take note of a job that has changed its state."""
        if job.state == journal.FINISHED:
            self.finished.update(job.runs)

    def is_done(self, path: str) -> bool:
        """Return whether a run has ended in this invocation, or did not have to be trained."""
        return path in self.finished or path not in self.to_make

    def __call__(self) -> str:
        if len(self.finished) > LEARN * self.learned:
            self.learned = len(self.finished)
            self.estimates.read_again()
            self.journal.expect(self.expected())
        jobs, call = list(self.journal.jobs.values()), self.journal.call
        # A copy, as a search adds runs to the table meanwhile, in another thread.
        table = dataclasses.replace(
            self.table, runs=dict(self.table.runs), conditions=dict(self.table.conditions)
        )
        look = state.CallSnapshot.at(self.folder, table, call, jobs, self.is_done)
        of_call = self.to_make.union(*(job.runs for job in jobs))
        runs = {path: one for path, one in look.runs.items() if path in of_call}
        look = dataclasses.replace(look, runs=runs)
        return look.bar() if sys.stderr.isatty() else look.line()


class ProgressLine(threading.Thread):
    """A thread that shows a line until it is closed; on a terminal, below what is logged.

    Args:
        look: returns the line.
        logger: its messages are printed above the line; None if there are none.
        interval: seconds between two updates where there is no terminal.

    Attributes:
        over: event that ends it.
    """

    def __init__(
        self,
        look: Callable[[], str],
        logger: logging.Logger | None = None,
        interval: float = EVERY_LINE,
    ) -> None:
        super().__init__(daemon=True)
        self.look, self.over = look, threading.Event()
        self.bar: tqdm | None = None
        self.is_on_terminal = sys.stderr.isatty()
        self.interval = EVERY if self.is_on_terminal else interval
        for handler in logger.handlers if logger and self.is_on_terminal else []:
            if is_of_terminal(handler):
                if not colours.are_shown(sys.stderr):
                    handler.nocolor = True  # type: ignore[attr-defined]  # Snakemake's
                handler.emit = _above(handler.emit)  # type: ignore[method-assign, assignment]

    def run(self) -> None:
        pause = self.interval
        while not self.over.wait(pause):
            began = time.perf_counter()
            with contextlib.suppress(OSError):  # files come and go
                self.show(self.look())
            pause = max(self.interval, (time.perf_counter() - began) / SHARE_OF_TIME)

    def show(self, line: str) -> None:
        """Show this line instead of the previous one."""
        if not self.is_on_terminal:
            print(line, file=sys.stderr, flush=True)
            return
        if self.bar is None:  # tqdm's bool() raises TypeError for a bar without a total
            self.bar = tqdm(bar_format="{desc}", leave=False)
        while len(line) > (self.bar.ncols or len(line)) and "; " in line:
            line = line.rpartition("; ")[0]  # a whole part, not the middle of a word
        line = line[: self.bar.ncols or None]
        green = colours.coloured(r"\1", colours.GREEN, sys.stderr)
        self.bar.set_description_str(re.sub(r"(?<=^\[)(#+)", green, line))

    def close(self) -> None:
        self.over.set()
        if self.is_alive():
            self.join()
        if self.bar is not None:
            self.bar.close()


def _above(emit: Callable[[logging.LogRecord], None]) -> Callable[[logging.LogRecord], None]:
    """Return a logging handler's emit() that first clears the line at the foot of the terminal."""

    def clear_and_emit(record: logging.LogRecord) -> None:
        with tqdm.external_write_mode(file=sys.stderr):
            emit(_red_in_first_line(record))

    return clear_and_emit


def _red_in_first_line(record: logging.LogRecord) -> logging.LogRecord:
    """Return the record of an error, which Snakemake prints in red, with the colour cut short."""
    is_error = record.levelno == logging.ERROR and isinstance(record.msg, str)
    if is_error and colours.are_shown(sys.stderr):
        record = copy.copy(record)  # other handlers, such as that of the log file, have it as well
        record.msg = record.msg.replace("\n", f"{colours.RESET}\n", 1)
    return record
