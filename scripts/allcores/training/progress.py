"""Progress of a run: a bar on a terminal, a printed line per epoch everywhere; files to be read."""

import os
import select
import sys
import time

from tqdm import tqdm

from allcores.files import write_text
from allcores.machine.costs import program_start

PATIENCE = 1.0  # seconds until a line must have been taken
# What is told of an epoch, where it is known.
TOLD = ("loss", "validation_loss", "lr")


class Record:
    """The epochs so far in files, to be read while a run goes on.

    `epochs.csv` is as of the last epoch; `tensorboard/` has event files, a point per epoch.

    Args:
        folder: of the run's results.
        tensorboard: whether to write event files.
    """

    def __init__(self, folder, tensorboard=False):
        self.folder, self.tensorboard, self.events = folder, tensorboard, None

    def write(self, epochs):
        """Write CSV of the epochs so far; seconds are those of training.

        Args:
            epochs: the record of each, see Progress.epoch().
        """
        names = [name for name in TOLD if epochs and name in epochs[-1]]
        lines = [",".join(["epoch", *names, "seconds"])]
        for number, epoch in enumerate(epochs, start=1):
            values = [number, *(epoch[name] for name in names), sum(epoch["phases"].values())]
            lines.append(",".join(map(str, values)))
        write_text(self.folder / "epochs.csv", "\n".join([*lines, ""]))

    def add(self, epochs):
        """Take in the last of the epochs so far, too."""
        self.write(epochs)
        if self.tensorboard:
            self._add_events(epochs)

    def _add_events(self, epochs):
        # Not SummaryWriter, whose thread may have something in hand when the process ends.
        from tensorboardX import event_file_writer, summary
        from tensorboardX.proto.event_pb2 import Event

        if self.events is None:
            place = self.folder / "tensorboard"
            place.mkdir(exist_ok=True)
            if len(epochs) == 1:  # what is there is of an earlier training
                for file in place.glob("events.*"):
                    file.unlink()
            self.events = event_file_writer.EventsWriter(str(place / "events"))
        for name in TOLD:
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
        """Say so: after that many epochs, and steps of the next."""
        self.bar.update(epochs * batches + step)
        beyond = f" and {step} of {batches} steps" if step else ""
        self._say(f"resumed after epoch {epochs} of {self.run.epochs}{beyond}")

    def batch(self):
        self.bar.update()
        if self.start_up is None:
            self.start_up = time.time() - program_start(os.getppid())

    def epoch(self, epochs):
        """Print and record the last epoch, on rank 0.

        Args:
            epochs: the record of each so far: {"loss", "lr", "phases": phase -> seconds}, perhaps
                "validation_loss".
        """
        self.record.add(epochs)
        done, record = len(epochs), epochs[-1]
        seconds = sum(record["phases"].values())
        shares = ", ".join(
            f"{phase} {100 * spent / seconds:.0f} %" for phase, spent in record["phases"].items()
        )
        judged = "validation_loss" in record
        validation = f"validation {record['validation_loss']:.4f}  " if judged else ""
        self._say(
            f"epoch {done}/{self.run.epochs}  loss {record['loss']:.4f}  {validation}"
            f"lr {record['lr']:.2g}  "
            f"{seconds:.2f} s  {self.samples / seconds:,.0f} images/s  ({shares})"
        )

    def close(self):
        self.bar.close()

    def _say(self, line):
        if self.silent:
            return
        # A line that nobody takes, the pipe being full, is left out: it would hold up the training.
        is_taken = bool(select.select([], [sys.stdout], [], self.patience)[1])
        self.patience = PATIENCE if is_taken else 0.0
        if is_taken:
            self.bar.clear()
            print(line, flush=True)
            self.bar.refresh()
