"""Progress of a run: a bar on a terminal, a printed line per epoch everywhere."""

import os
import sys
import time

from tqdm import tqdm

from allcores.machine.costs import program_start


class Progress:
    """Prints the progress on rank 0; does nothing visible on the other ranks.

    Attributes:
        start_up: seconds from the start of the program, this process's parent, to the end of the
            first training step.
    """

    def __init__(self, run, samples, batches, world):
        self.run, self.samples, self.silent = run, samples, world.rank != 0
        self.start_up = None
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

    def epoch(self, done, record):
        """Print the record of an epoch.

        Args:
            done: number of whole epochs so far.
            record: {"loss", "lr", "phases": phase -> seconds}, perhaps "validation_loss".
        """
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
        if not self.silent:
            self.bar.clear()
            print(line, flush=True)
            self.bar.refresh()
