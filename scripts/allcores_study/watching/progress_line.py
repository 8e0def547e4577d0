"""The line at the foot of the terminal that shows the progress of an invocation."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

from tqdm import tqdm

from allcores_study.watching import journal, state
from allcores_study.watching.events import is_of_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allcores_study.config.grid import Table
    from allcores_study.watching.journal import JobRecord, Journal

# Seconds between two updates: on a terminal, and where each update prints another line, unless
# LINES_EVERY in the environment says it. Then the share of a core's time that updates may take.
EVERY, EVERY_LINE, SHARE_OF_TIME = 1.0, 30.0, 0.02
LINES_EVERY = "ALLCORES_SECONDS_PER_LINE"


class CallProgress:
    """The progress of an invocation, in its own process.

    Args:
        table: the runs of the config.
        paths: of the runs that it trains.
    """

    def __init__(self, table: Table, paths: Iterable[str], journal: Journal) -> None:
        self.table, self.paths, self.journal = table, list(paths), journal
        self.finished: set[str] = set()

    def notice(self, job: JobRecord) -> None:
        """Take note of a job that has changed its state."""
        if job.state == journal.FINISHED:
            self.finished.update(job.runs)

    def __call__(self) -> state.CallSnapshot:
        jobs = list(self.journal.jobs.values())
        runs = state.states(self.paths, jobs, self.finished.__contains__)
        return state.CallSnapshot(self.table, self.journal.call, jobs, runs)


class ProgressLine(threading.Thread):
    """A thread that shows a line until it is closed; on a terminal, below what is logged.

    Args:
        look: returns what to show.
        logger: its messages are printed above the line; None if there are none.
        interval: seconds between two updates where there is no terminal; None: see above.

    Attributes:
        over: event that ends it.
    """

    def __init__(
        self,
        look: Callable[[], state.CallSnapshot],
        logger: logging.Logger | None = None,
        interval: float | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self.look, self.over = look, threading.Event()
        self.bar: tqdm | None = None
        self.is_on_terminal = sys.stderr.isatty()
        by_lines = interval or float(os.environ.get(LINES_EVERY, EVERY_LINE))
        self.interval = EVERY if self.is_on_terminal else by_lines
        for handler in logger.handlers if logger and self.is_on_terminal else []:
            if is_of_terminal(handler):
                if os.environ.get("NO_COLOR"):  # https://no-color.org
                    handler.nocolor = True  # type: ignore[attr-defined]  # Snakemake's
                handler.emit = _above(handler.emit)  # type: ignore[method-assign, assignment]

    def run(self) -> None:
        pause = self.interval
        while not self.over.wait(pause):
            began = time.perf_counter()
            with contextlib.suppress(OSError):  # files come and go
                self.show(self.look())
            pause = max(self.interval, (time.perf_counter() - began) / SHARE_OF_TIME)

    def show(self, snapshot: state.CallSnapshot) -> None:
        """Show a line instead of the previous one."""
        if not self.is_on_terminal:
            print(snapshot.line(), file=sys.stderr, flush=True)
            return
        if self.bar is None:  # tqdm's bool() raises TypeError for a bar without a total
            self.bar = tqdm(bar_format="{desc}", leave=False)
        self.bar.set_description_str(snapshot.line(self.bar.ncols or 80))

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
            emit(record)

    return clear_and_emit
