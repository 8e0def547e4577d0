"""Save after every epoch, resume after any death, leave nothing behind.

A run's work folder lies outside its declared outputs, because Snakemake deletes those of a job that
failed. It holds the latest checkpoint and, where curves are wanted, the weights after each epoch.
"""

import hashlib
import shutil
from pathlib import Path

import torch


class Work:
    """The work folder of one run.

    Args:
        folder: where.
        identity: all that decides the outcome of the run: settings, code, data, torch's version. A
            checkpoint of another identity is not taken up.
    """

    def __init__(self, folder, identity):
        self.folder = Path(folder)
        self.identity = hashlib.sha256("\n".join(identity).encode()).hexdigest()
        self.latest = self.folder / "latest.pt"
        if not self._is_mine():
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    def _is_mine(self):
        try:
            return self._load(self.latest)["identity"] == self.identity
        except (
            Exception
        ):  # none, or cut short by a full disk: either way there is nothing to resume
            return False

    def _load(self, path):
        return torch.load(path, weights_only=True)

    def resume(self):
        """The latest checkpoint, or None at the start."""
        return self._load(self.latest) if self.latest.exists() else None

    def save(self, checkpoint):
        """Replace the latest checkpoint in one step."""
        save_beside(checkpoint | {"identity": self.identity}, self.latest)

    def save_weights(self, epoch, weights):
        save_beside(weights, self.folder / f"weights_{epoch:05d}.pt")

    def weights(self, epoch):
        """The state_dict after that epoch, counted from 0."""
        return self._load(self.folder / f"weights_{epoch:05d}.pt")

    def remove(self):
        shutil.rmtree(self.folder)


def save_beside(content, path):
    """Write beside, then rename: a killed process leaves the old file or the new one."""
    beside = Path(f"{path}.part")
    torch.save(content, beside)
    beside.replace(path)
