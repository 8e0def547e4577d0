"""Progress of a run: a bar on a terminal, a printed line per epoch, files for other programs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from allcores.files import write_text
from allcores.machine.costs import program_start

if TYPE_CHECKING:
    from allcores.parallel.world import World
    from allcores_study.config.run import Run

PATIENCE = 1.0  # seconds to wait until a line can be printed
INTERVAL = 1.0  # least seconds between two records of a run
# The states of a run that has begun. It may have been killed since; then its job's state decides.
BEGUN, TRAINED, FAILED, STOPPED = "begun", "trained", "failed", "stopped"
ALL = ""  # stands for the whole job in place of a path
SHARE = 0.01  # records of a run are at least this share of its time so far apart
LAST_LINES = 3  # of an error that are recorded


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come, as far as it has recorded it.

    Attributes:
        state: BEGUN, TRAINED, FAILED or STOPPED.
        began: when it began, in seconds since 1970.
        epochs, loss: number of completed epochs, and the loss of the last one; None: there is none.
        resumed: how many of them an earlier session has trained.
        most: how many there will be; 0: it is not known yet.
        error: the last lines of its error; "": the process could not record it.
    """

    state: str
    began: float = 0.0
    epochs: int = 0
    loss: float | None = None
    resumed: int = 0
    most: int = 0
    error: str = ""


class ProgressFile:
    """The progress of the runs of a job: one line of JSON per change, for programs that watch.

    The process of a job and its forks append lines in turn. If they replaced the file instead, a
    job of 1,000 runs would write each of them 1,000 times.

    Attributes:
        file: its path; None: nothing is recorded, as for a run by hand.
        begun: paths of the runs that have begun in this process or before it was forked.
    """

    def __init__(self) -> None:
        self.file: Path | None = None
        self.begun: list[str] = []
        self.began = self.noted = 0.0

    def start_file(self, file: str | Path, trained: Iterable[str] = ()) -> None:
        """Record in a file from now on; of an earlier attempt, only these paths stay trained."""
        self.file = Path(file)
        kept = "".join(json.dumps([path, {"state": TRAINED}]) + "\n" for path in trained)
        with contextlib.suppress(OSError):
            if kept:  # at once: nobody is to see that nothing is trained
                write_text(self.file, kept)
            else:
                self.file.unlink()

    def begin(self, run: Run) -> None:
        """Record that a run begins."""
        self.began = self.noted = time.time()
        self.begun.append(run.path)
        self._note(run.path, state=BEGUN, began=self.began, most=run.epochs)

    def resume(self, epochs: int) -> None:
        """Record that the latest run goes on after so many epochs."""
        if self.begun:
            self._note(self.begun[-1], epochs=epochs, resumed=epochs)

    def epoch(self, epochs: int, loss: float | None, is_last: bool) -> None:
        """Record the number of completed epochs of the latest run, and the loss of the last one."""
        now = time.time()
        if self.begun and (is_last or now - self.noted > max(INTERVAL, SHARE * (now - self.began))):
            self.noted = now
            self._note(self.begun[-1], epochs=epochs, loss=loss)

    def end(self, state: str, path: str | None = None, error: str = "") -> None:
        """Record how a run has ended.

        Args:
            path: its path; None: all that have begun and not ended, or else the whole job.
            error: what it failed with.
        """
        ended = self.begun or [ALL] if path is None else [path]
        self.begun = [path for path in self.begun if path not in ended]
        text = "\n".join(error.strip().splitlines()[-LAST_LINES:])
        for path in ended:
            self._note(path, state=state, **({"error": text} if text else {}))

    def _note(self, path: str, **changes: Any) -> None:
        # A full disk must not end the training.
        with contextlib.suppress(OSError):
            if self.file:
                with self.file.open("a") as file:
                    file.write(json.dumps([path, changes]) + "\n")


of_process = ProgressFile()  # of the job of this process; ranks, forked from it, add to it


def read(file: str | Path) -> dict[str, RunProgress]:
    """Return path -> RunProgress of the runs that have begun; damaged lines are ignored."""
    changes: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(OSError):
        for line in Path(file).read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError, TypeError):
                path, change = json.loads(line)
                RunProgress(**{"state": BEGUN} | change)  # raises TypeError for other keys
                changes[path] = changes.get(path, {}) | change
    return {path: RunProgress(**change) for path, change in changes.items() if "state" in change}


class Progress:
    """Progress that rank 0 prints and records; on the other ranks nothing is visible.

    Attributes:
        start_up: seconds from the start of the program, this process's parent, to the end of the
            first training step.
    """

    def __init__(self, run: Run, samples: int, batches: int, world: World) -> None:
        self.run, self.samples, self.silent = run, samples, world.rank != 0
        self.start_up: float | None = None
        self.patience = PATIENCE
        self.bar = tqdm(
            total=run.epochs * batches,
            unit=" batches",
            leave=False,
            disable=self.silent or not sys.stderr.isatty(),
        )

    def resumed(self, epochs: int, step: int, batches: int) -> None:
        """Print after how many epochs, and steps of the next one, the run was resumed."""
        self.bar.update(epochs * batches + step)
        if not self.silent:
            of_process.resume(epochs)
        detail = f" and {step} of {batches} steps" if step else ""
        self._say(f"resumed after epoch {epochs} of {self.run.epochs}{detail}")

    def batch(self) -> None:
        self.bar.update()
        if self.start_up is None:
            self.start_up = time.time() - program_start(os.getppid())

    def epoch(self, epochs: list[dict[str, Any]]) -> None:
        """Print and record the last epoch, on rank 0.

        Args:
            epochs: one record per epoch so far: {"loss", "lr", "phases": phase -> seconds}, perhaps
                "validation_loss".
        """
        done, epoch = len(epochs), epochs[-1]
        of_process.epoch(done, epoch["loss"], is_last=done == self.run.epochs)
        seconds = sum(epoch["phases"].values())
        shares = ", ".join(
            f"{phase} {100 * spent / seconds:.0f} %" for phase, spent in epoch["phases"].items()
        )
        has_validation = "validation_loss" in epoch
        validation = f"validation {epoch['validation_loss']:.4f}  " if has_validation else ""
        self._say(
            f"epoch {done}/{self.run.epochs}  loss {epoch['loss']:.4f}  {validation}"
            f"lr {epoch['lr']:.2g}  "
            f"{seconds:.2f} s  {self.samples / seconds:,.0f} samples/s  ({shares})"
        )

    def close(self) -> None:
        self.bar.close()

    def _say(self, line: str) -> None:
        if self.silent:
            return
        # A line is dropped if nobody reads a full pipe: waiting would hold up the training.
        is_writable = bool(select.select([], [sys.stdout], [], self.patience)[1])
        self.patience = PATIENCE if is_writable else 0.0
        if is_writable:
            self.bar.clear()
            print(line, flush=True)
            self.bar.refresh()
