"""Save checkpoints, resume from them, delete only files written here.

A run's checkpoints are outside its declared outputs, because Snakemake deletes the outputs of a
failed job. Their folder contains the latest checkpoint, the epochs since, what the run has cost so
far, the weights that will be scored, a lock, and the file by which nodes meet. The name of every
file ends with SUFFIX; a folder that contains anything else is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import torch

from allcores import files
from allcores_study.records import fingerprint
from allcores_study.records.results_folder import SUFFIX
from allcores_study.training.evaluation import shipped

# Seconds within which a file written on one node must be visible on another: NFS may take up to a
# minute to refresh what it has cached.
VISIBLE_WITHIN = 120.0


class Checkpoints:
    """The checkpoints of one run, in a folder that is locked for this process and its forks.

    Args:
        folder: where the files are; created if missing.
        identity: what has to match for a checkpoint to be resumed from: the run's identity, and
            whether it is timed alone.
        epochs: number of epochs to train.
        every_epoch: whether the weights after each epoch will be scored, not only those that the
            run ships.

    Attributes:
        notes: why existing checkpoints could not be used.

    Raises:
        ValueError: the folder contains files that are not checkpoints, or another process is using
            it.
        OSError: the folder or a file in it cannot be read; nothing was changed.
    """

    def __init__(
        self, folder: str | Path, identity: str, epochs: int, every_epoch: bool = False
    ) -> None:
        self.folder = Path(folder)
        self.identity = hashlib.sha256(identity.encode()).hexdigest()
        self.epochs, self.every_epoch = epochs, every_epoch
        self.notes: list[str] = []
        _refuse_foreign(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = _lock_file(self._file("lock"))
        self._latest = self._file("latest")
        self._noted = self._file("epochs")
        self._notes_file: IO[str] | None = None  # in which _noted is being written
        try:
            self._choose()
        except OSError:
            os.close(self.lock)
            raise

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.lock)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"

    def _weights(self, epoch: int) -> Path:
        return self._file(f"weights_{epoch:05d}")

    @property
    def trace(self) -> Path:
        """The file in which costs.Watch records what the run has cost so far."""
        return self._file("trace")

    @property
    def digest(self) -> str | None:
        """The digest of the latest checkpoint, in hexadecimal; None: there is none."""
        return _digest(self._latest).hex() if self._latest.exists() else None

    def _choose(self) -> None:
        """Keep the latest checkpoint if it is sound; if not, empty the folder."""
        checkpoint = self._load_usable(self._latest)
        if checkpoint is None or self._lacks_weights(self._scored(checkpoint["epochs"])):
            self._empty()
        else:
            self._noted.unlink(missing_ok=True)

    def _load_usable(self, file: Path) -> dict[str, Any] | None:
        """Return the checkpoint in a file; None: it is missing, damaged or of another identity."""
        try:
            checkpoint = load(file)
        except FileNotFoundError:
            return None
        except ValueError as error:
            self.notes.append(str(error))
            return None
        if checkpoint["identity"] != self.identity:
            self.notes.append(
                f"not resumed from {file}: its settings, code, data, versions or `exclusive` differ"
            )
            return None
        changed = fingerprint.changed(checkpoint["loaded"])
        if changed:
            self.notes.append(f"not resumed from {file}: {', '.join(changed)} was edited")
            return None
        if len(checkpoint["epochs"]) > self.epochs:
            self.notes.append(f"not resumed from {file}: it is from a later epoch")
            return None
        return checkpoint

    def _lacks_weights(self, epochs: Sequence[int]) -> bool:
        for epoch in epochs:
            try:
                load(self._weights(epoch))
            except (FileNotFoundError, ValueError) as error:
                self.notes.append(f"the weights of epoch {epoch + 1} are lost ({error})")
                return True
        return False

    def latest(self) -> dict[str, Any] | None:
        """Return the latest checkpoint, or None at the start."""
        return load(self._latest) if self._latest.exists() else None

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Write a checkpoint in place of the previous one."""
        made_of = {"identity": self.identity, "loaded": fingerprint.loaded()}
        save(checkpoint | made_of, self._latest)
        self._noted.unlink(missing_ok=True)
        self._notes_file = None
        needed = {self._weights(epoch) for epoch in self._scored(checkpoint["epochs"])}
        for file in set(self.folder.glob(f"weights_*{SUFFIX}")) - needed:
            file.unlink()

    def note(self, record: dict[str, Any]) -> None:
        """Record an epoch that no checkpoint has yet, in case the run diverges."""
        if self._notes_file is None:
            self._notes_file = self._noted.open("a", buffering=1)  # each line is written at once
        self._notes_file.write(json.dumps(record) + "\n")

    def trained(self) -> dict[str, Any]:
        """Return the latest checkpoint with the epochs noted since; {}: there is nothing."""
        lines = self._noted.read_text().splitlines() if self._noted.exists() else []
        checkpoint = self.latest() or {}
        epochs = checkpoint.get("epochs", []) + [json.loads(line) for line in lines]
        return checkpoint | {"epochs": epochs} if epochs else checkpoint

    def save_weights(self, epochs: list[dict[str, Any]], weights: dict[str, Any]) -> None:
        """Write the state_dict after the last of these epochs, if it may be scored."""
        last = len(epochs) - 1
        if last not in self._scored(epochs):
            return
        save(weights, self._weights(last))

    def _scored(self, epochs: list[dict[str, Any]]) -> Sequence[int]:
        """Return the epochs, from 0, whose weights would be scored if the run ended after these."""
        if self.every_epoch:
            return range(len(epochs))
        is_judged = epochs and "validation_loss" in epochs[-1]
        return [shipped(epochs)] if is_judged or len(epochs) == self.epochs else []

    def weights(self, epoch: int) -> dict[str, Any]:
        """Return the state_dict after that epoch, counted from 0.

        Raises:
            ValueError: the file was damaged since it was written.
        """
        return load(self._weights(epoch))

    def _empty(self) -> None:
        # Checkpoints first: if this is interrupted, none is left without its weights.
        files = [self._latest, *self.folder.glob(f"*{SUFFIX}")]
        for file in files:
            if file != self._file("lock"):
                file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete what the run has written here, and the folder if it is then empty."""
        self._empty()
        self._file("lock").unlink()
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


class RemoteCheckpoints:
    """The checkpoints of a run, read on a node that does not write them.

    A shared file system may show a new file there with a delay.

    Args:
        folder: where they are.
        node: number of this node.
        digest: that of the latest checkpoint, as the first node wrote it; None: there is none.

    Raises:
        ValueError: that checkpoint does not become visible on this node.
    """

    def __init__(self, folder: str | Path, node: int, digest: str | None) -> None:
        self.digest, self._latest = digest, Path(folder) / f"latest{SUFFIX}"
        self.trace = Path(folder) / f"trace_of_node_{node}{SUFFIX}"
        deadline = time.monotonic() + VISIBLE_WITHIN
        while digest and not (self._latest.exists() and _digest(self._latest).hex() == digest):
            if time.monotonic() > deadline:
                raise ValueError(f"{self._latest} does not appear here as the first node wrote it")
            time.sleep(0.1)

    def latest(self) -> dict[str, Any] | None:
        """Return the latest checkpoint, or None at the start."""
        return load(self._latest) if self.digest else None


def rendezvous(folder: str | Path) -> Path:
    """Return the file by which the launchers of several nodes find each other."""
    return Path(folder) / f"rendezvous{SUFFIX}"


def _refuse_foreign(folder: Path) -> None:
    present: Iterable[Path] = folder.iterdir() if folder.is_dir() else []
    foreign = [file for file in present if file.suffix != SUFFIX]
    if foreign:
        raise ValueError(
            f"{folder} contains {foreign[0].name}, which is not a checkpoint of a run; use a "
            "separate folder for checkpoints. Nothing was changed"
        )


def _lock_file(path: Path) -> int:
    """Lock a file and return its descriptor; the lock lasts while any process has it open."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            files.hold(descriptor, wait=False)
        except BlockingIOError:
            os.close(descriptor)
            raise ValueError(
                f"{path.parent} is in use: another process trains the same run, perhaps an earlier "
                "attempt on a node that a cluster has lost; try again once it has ended"
            ) from None
        # The previous holder may have deleted the file meanwhile; a lock on it would be void.
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            os.utime(descriptor)  # so that watching programs see when this session began
            return descriptor
        os.close(descriptor)


def save(content: dict[str, Any], path: Path) -> None:
    """Write tensors and plain values with a SHA-256 checksum, atomically."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    part = path.with_stem(f"{path.stem}-part")
    with part.open("wb") as file:
        file.write(hashlib.sha256(buffer.getbuffer()).digest())
        file.write(buffer.getbuffer())
    part.replace(path)


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(hashlib.sha256().digest_size)


def load(path: Path) -> dict[str, Any]:
    """Return what save() wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the checksum does not match: the file is damaged.
    """
    content = memoryview(path.read_bytes())
    length = hashlib.sha256().digest_size
    digest, tensors = content[:length], content[length:]
    if digest != hashlib.sha256(tensors).digest():
        raise ValueError(f"{path} is damaged, so it is not used")
    return torch.load(io.BytesIO(tensors), weights_only=True)


def save_weights(weights: dict[str, Any], path: Path) -> None:
    """Write a state_dict that torch.load() reads, atomically."""
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    with files.whole(path) as part:
        part.write_bytes(buffer.getbuffer())
