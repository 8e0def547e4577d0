"""Datasets on disk: written once, checked whenever they are opened, memory-mapped by every run.

A dataset is a folder with inputs.npy, targets.npy and dataset.json. Images also have
pixel_sums.npy, samples in groups groups.npy, samples in order of time times.npy, and samples with
folds of their own folds.npy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores.files import KeptDigests, sha256
from allcores_study.data import tokens
from allcores_study.data.facts import Facts
from allcores_study.data.tokens import Vocabulary
from allcores_study.records.identity import Record
from allcores_study.tasks import base as tasks

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import DTypeLike


@dataclass
class Samples:
    """The data that a dataset's load() returns.

    Attributes:
        shape: (N, ...) of all inputs; images are (N, C, H, W). The training part comes first.
        chunks: consecutive arrays, N samples in all: uint8 images, float32, float64 for
            a table, or int32 tokens, (n, L).
        targets: what the task's checked() takes, such as (N,) class numbers from 0.
        train: number of samples in the training part; the rest are the dataset's own test set.
        task: what is predicted.
        names: of the classes, the labels or several numbers; None: there is one number.
        groups: (train,) integers, of the training samples; samples of one group are held out
            together; None: no groups.
        group_names: names of the groups by their numbers; None: they have only numbers.
        classes: the classes as the user's data have them, in the order of their numbers; None: they
            are their names, or the integers from 0 if these are the names.
        times: (train,) numbers or dates, of the training samples; held-out samples come after those
            that are trained on; None: they have no order.
        folds: (train,) the fold from 0 in which each training sample is held out, or -1 if it is in
            none; None: the study assigns folds.
        columns: the features of a table: [{"name": str, "category": the text that it indicates, or
            None for a number}, ...]; None: it is not a table.
        dtype: dtype of the chunks.
        notes: sentences on what may be unintended.
        vocabulary: the known tokens; None: the inputs are not tokens.
    """

    shape: tuple[int, ...]
    chunks: Iterable[np.ndarray]
    targets: np.ndarray
    train: int
    task: tasks.Task
    names: Sequence[Any] | None = None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None
    folds: np.ndarray | None = None
    columns: list[dict[str, Any]] | None = None
    dtype: DTypeLike = np.uint8
    notes: list[str] = field(default_factory=list)
    vocabulary: Vocabulary | None = None
    group_names: list[str] | None = None
    classes: pd.Index | None = None


@dataclass
class Dataset:
    """An opened dataset.

    Attributes:
        inputs: (N, ...), memory-mapped; images are (N, C, H, W) uint8, tables (N, F) float64,
            tokens (N, L) int32, others float32.
        targets: (N,) int64 classes or float64 numbers.
        pixel_sums: (N, 2, C) int64, each image's sums of pixels and of squared pixels per channel;
            None: the inputs are not uint8 images.
        groups: as in Samples, int64.
        times: (train,) int64, of the training samples, from 0 without a gap; None: as in Samples.
        folds: as in Samples, int64.
        record: the Record in dataset.json.
        facts: the Facts in it.
        unseen: positions of the columns that inputs lack, see seen_by().
        vocabulary: as in Samples.
    """

    inputs: np.ndarray
    targets: np.ndarray
    pixel_sums: np.ndarray | None
    groups: np.ndarray | None
    times: np.ndarray | None
    folds: np.ndarray | None
    record: Record
    facts: Facts
    unseen: tuple[int, ...] = ()
    vocabulary: Vocabulary | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample."""
        return self.inputs.shape[1:]

    @property
    def vocabulary_size(self) -> int | None:
        """The number of tokens; None: the inputs are not tokens."""
        return self.vocabulary and self.vocabulary.size  # type: ignore[return-value]

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The features of a table, as in Samples; []: it is not a table."""
        columns = self.facts.columns or []
        return [column for place, column in enumerate(columns) if place not in self.unseen]

    @property
    def group_of(self) -> np.ndarray | None:
        """The name or number of each training sample's group, as texts; None: no groups."""
        if self.groups is None:
            return None
        if names := self.facts.group_names:
            return np.array(names, dtype=object)[self.groups]
        return self.groups.astype(str).astype(object)

    @property
    def task(self) -> tasks.Task:
        """The task that the targets are for."""
        return tasks.named(self.facts.task, self.facts.outputs)

    def seen_by(self, samples: np.ndarray) -> Dataset:
        """Return the Dataset without categories and words that none of its training samples has.

        Otherwise a held-out row would decide how wide the network's input is, and with that which
        initial weights are drawn.

        Args:
            samples: positions of the training samples, (n,) int64.
        """
        if self.vocabulary and self.vocabulary.words:
            mine = self.inputs[samples]
            vocabulary, renumbered = self.vocabulary.known_by(mine)
            inputs = renumbered[self.inputs[:, : tokens.longest(mine)]]
            return replace(self, inputs=inputs, vocabulary=vocabulary)
        indicators = [i for i, entry in enumerate(self.columns) if entry["category"] is not None]
        unseen = tuple(place for place in indicators if not self.count_with([place], samples))
        if not unseen:
            return self
        return replace(self, inputs=np.delete(self.inputs, unseen, axis=1), unseen=unseen)

    def count_with(self, columns: Sequence[int], samples: np.ndarray) -> int:
        """Return how many of these samples have one of the categories of these columns."""
        if not len(columns):
            return 0
        found = self.inputs[np.ix_(samples, np.asarray(columns))] == 1
        return int(found.any(axis=1).sum())


def write(
    folder: str | Path,
    source: Samples,
    made_of: str = "",
    check: Callable[[], object] = lambda: None,
) -> None:
    """Write a dataset: new files first, which then replace the old ones; dataset.json last.

    A process that has mapped the old arrays keeps them.

    Args:
        folder: created if missing.
        made_of: recorded in dataset.json, to decide whether the dataset has to be rebuilt.
        check: called once everything is read; if it raises, the old dataset stays.

    Raises:
        ValueError: inputs and targets do not fit together.
        OSError: a file cannot be written, for instance because the disk is full.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"targets": _checked_targets(source)}
    if source.groups is not None:
        arrays["groups"] = np.asarray(source.groups, np.int64)
    if source.times is not None:
        arrays["times"] = np.unique(source.times, return_inverse=True)[1].astype(np.int64)
    if source.folds is not None:
        arrays["folds"] = np.asarray(source.folds, np.int64)
    file: Any
    parts = {"inputs.npy": folder / "inputs.npy.part"}
    try:
        pixel_sums = _write_inputs(parts["inputs.npy"], source)
        if pixel_sums is not None:
            arrays["pixel_sums"] = pixel_sums
        for name, array in arrays.items():
            parts[f"{name}.npy"] = folder / f"{name}.npy.part"
            with parts[f"{name}.npy"].open("wb") as file:
                np.save(file, array)
        check()
    except BaseException:
        for file in parts.values():
            file.unlink(missing_ok=True)
        raise
    digests = {name: sha256(file) for name, file in parts.items()}
    (folder / "dataset.json").unlink(missing_ok=True)
    for name, file in parts.items():
        file.replace(folder / name)
    Record(made_of, digests, content=asdict(Facts.of(source))).write(folder / "dataset.json")


def _checked_targets(source: Samples) -> np.ndarray:
    """Return the targets of Samples, with the dtype in which they are written.

    Raises:
        ValueError: they do not fit the inputs.
    """
    targets = source.task.checked(source.targets)
    if len(targets) != source.shape[0]:
        raise ValueError(f"{source.shape[0]} samples, but {len(targets)} targets")
    if not 1 <= source.train <= len(targets):
        raise ValueError(
            f"{source.train} of {len(targets)} samples to train on; expected at least 1"
        )
    return targets


def _write_inputs(path: Path, source: Samples) -> np.ndarray | None:
    """Write the inputs of Samples; return the pixel_sums of images, or None."""
    inputs = np.lib.format.open_memmap(path, mode="w+", dtype=source.dtype, shape=source.shape)
    with path.open("r+b") as file:  # here a full disk is an error, in a mapping a bus error
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    of_images = inputs.dtype == np.uint8
    pixel_sums: Any = (
        np.empty((source.shape[0], 2, source.shape[1]), np.int64) if of_images else None
    )
    start = 0
    for chunk in source.chunks:
        rows = slice(start, start + len(chunk))
        inputs[rows] = chunk
        if of_images:
            wide = chunk.astype(np.int64)
            pixel_sums[rows, 0] = wide.sum(axis=(2, 3))
            pixel_sums[rows, 1] = (wide**2).sum(axis=(2, 3))
        start += len(chunk)
    assert start == source.shape[0], "a dataset's chunks must add up to its shape"
    inputs.flush()
    return pixel_sums


def open_dataset(folder: str | Path) -> Dataset:
    """Return the Dataset that write() made in a folder.

    Raises:
        ValueError: a file is missing, or differs from what was written.
    """
    folder = Path(folder)
    record, digests = read_record(folder), KeptDigests(folder / "digests.json")
    if damaged := record.damaged_file(folder, digests.of):
        raise ValueError(
            f"{damaged} is gone, or is not what was prepared; delete the folder {folder} to "
            "prepare the dataset again"
        )
    digests.save()
    return Dataset(
        # Copy-on-write: torch needs writable memory, and nothing may be written to the file.
        inputs=np.load(folder / "inputs.npy", mmap_mode="c"),
        **{  # type: ignore[arg-type]
            name: np.load(folder / f"{name}.npy") if f"{name}.npy" in record.files else None
            for name in ("targets", "pixel_sums", "groups", "times", "folds")
        },
        record=record,
        facts=(facts := Facts.from_json(record.content)),
        vocabulary=facts.vocabulary,
    )


def read_record(folder: str | Path) -> Record:
    """Return the Record in dataset.json.

    Raises:
        ValueError: there is none, or it is damaged.
    """
    file = Path(folder) / "dataset.json"
    try:
        return Record.read(file)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} holds no prepared dataset: {file} is missing") from None
