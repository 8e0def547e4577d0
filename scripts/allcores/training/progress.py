"""Progress of a run: a bar on a terminal, a printed line per epoch, files that others can read."""

import math
import os
import select
import sys
import time

from tqdm import tqdm

from allcores.files import write_text
from allcores.machine.costs import program_start

PATIENCE = 1.0  # seconds to wait until a line can be printed
INTERVAL = 1.0  # seconds from one writing of epochs.csv to the next
# What is recorded of an epoch, if it has it.
COLUMNS = ("loss", "validation_loss", "lr")


class EpochFiles:
    """Files of the epochs so far, to be read while the run goes on.

    `epochs.csv` is rewritten after an epoch, once a second at most; `tensorboard/` has event files,
    a point per epoch.

    Args:
        folder: of the run's results.
        tensorboard: whether to write event files.
    """

    def __init__(self, folder, tensorboard=False):
        self.folder, self.tensorboard, self.events = folder, tensorboard, None
        self.written = -math.inf

    def write(self, epochs):
        """Write a CSV of the epochs so far, with the seconds of training.

        Args:
            epochs: one record per epoch, see Progress.epoch().
        """
        names = [name for name in COLUMNS if epochs and name in epochs[-1]]
        lines = [",".join(["epoch", *names, "seconds"])]
        for number, epoch in enumerate(epochs, start=1):
            values = [number, *(epoch[name] for name in names), sum(epoch["phases"].values())]
            lines.append(",".join(map(str, values)))
        write_text(self.folder / "epochs.csv", "\n".join([*lines, ""]))

    def add(self, epochs):
        """Record the last of these epochs; the others are recorded already."""
        if time.monotonic() - self.written > INTERVAL:
            self.write(epochs)
            self.written = time.monotonic()
        if self.tensorboard:
            self._add_events(epochs)

    def _add_events(self, epochs):
        # Not SummaryWriter, whose thread may have unwritten events when the process ends.
        from tensorboardX import event_file_writer, summary
        from tensorboardX.proto.event_pb2 import Event

        if self.events is None:
            folder = self.folder / "tensorboard"
            folder.mkdir(exist_ok=True)
            if len(epochs) == 1:  # files of an earlier training
                for file in folder.glob("events.*"):
                    file.unlink()
            self.events = event_file_writer.EventsWriter(str(folder / "events"))
        for name in COLUMNS:
            if name in epochs[-1]:
                point = summary.scalar(name, epochs[-1][name])
                event = Event(wall_time=time.time(), step=len(epochs), summary=point)
                self.events.write_event(event)
        self.events.flush()


class Progress:
    """Prints and records the progress on rank 0; does nothing visible on the other ranks.

    Attributes:
        start_up: seconds from the start of the program, this process's parent, to the end of the
            first training step.
    """

    def __init__(self, run, samples, batches, world, record):
        self.run, self.samples, self.silent = run, samples, world.rank != 0
        self.record = record
        self.start_up, self.patience = None, PATIENCE
        self.bar = tqdm(
            total=run.trained_epochs * batches,
            unit=" batches",
            leave=False,
            disable=self.silent or not sys.stderr.isatty(),
        )

    def resumed(self, epochs, step, batches):
        """Print that the run was resumed, after how many epochs and steps of the next."""
        self.bar.update(epochs * batches + step)
        detail = f" and {step} of {batches} steps" if step else ""
        self._say(f"resumed after epoch {epochs} of {self.run.epochs}{detail}")

    def batch(self):
        self.bar.update()
        if self.start_up is None:
            self.start_up = time.time() - program_start(os.getppid())

    def epoch(self, epochs):
        """Print and record the last epoch, on rank 0.

        Args:
            epochs: one record per epoch so far: {"loss", "lr", "phases": phase -> seconds}, perhaps
                "validation_loss".
        """
        self.record.add(epochs)
        done, record = len(epochs), epochs[-1]
        seconds = sum(record["phases"].values())
        shares = ", ".join(
            f"{phase} {100 * spent / seconds:.0f} %" for phase, spent in record["phases"].items()
        )
        has_validation = "validation_loss" in record
        validation = f"validation {record['validation_loss']:.4f}  " if has_validation else ""
        self._say(
            f"epoch {done}/{self.run.epochs}  loss {record['loss']:.4f}  {validation}"
            f"lr {record['lr']:.2g}  "
            f"{seconds:.2f} s  {self.samples / seconds:,.0f} samples/s  ({shares})"
        )

    def close(self):
        self.bar.close()

    def _say(self, line):
        if self.silent:
            return
        # A line is dropped if nobody reads a full pipe: waiting would hold up the training.
        is_writable = bool(select.select([], [sys.stdout], [], self.patience)[1])
        self.patience = PATIENCE if is_writable else 0.0
        if is_writable:
            self.bar.clear()
            print(line, flush=True)
            self.bar.refresh()
