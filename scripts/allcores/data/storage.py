"""Datasets on disk: written once, checked whenever they are opened, memory-mapped by every run.

A dataset is a folder of inputs.npy, targets.npy and dataset.json; of images also pixel_sums.npy,
where samples belong together groups.npy, and where one comes after the other times.npy.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from allcores.files import KeptDigests, checksum, sha256, write_text


@dataclass(frozen=True)
class Metadata:
    """What is known of a dataset before it is loaded.

    Attributes:
        train, test: numbers of samples in the training part and in its own test set.
        smallest_class: samples of the training part's rarest class; None: the targets are numbers.
        shape: of a sample, (C, H, W) of an image.
        classes: how many there are; None: the targets are numbers.
        groups: into how many the training part falls; None: every sample is for itself.
        times: how many different ones the training part has; None: it has no order.
    """

    train: int
    test: int
    smallest_class: int | None
    shape: tuple
    classes: int | None
    groups: int | None = None
    times: int | None = None

    @property
    def outputs(self):
        """How many a network has: one per class, or one for a number."""
        return self.classes or 1


def blurred(values):
    """Which columns of (N, ...) numbers float32 would blur, as the seconds of an hour since 1970.

    Its steps there are more than a hundredth of the standard deviation. What differs by float64's
    own rounding alone does not count.
    """
    values = np.asarray(values, np.float64)
    largest, spread = np.abs(values).max(axis=0), np.ptp(values, axis=0)
    steps = np.spacing(largest.astype(np.float32))
    return (spread > 1e-12 * largest) & (steps > 0.01 * values.std(axis=0))


@dataclass
class Samples:
    """What a dataset's load() gives.

    Attributes:
        shape: (N, ...) of all inputs; images are (N, C, H, W). The training part comes first.
        chunks: iterable of consecutive arrays, N samples in all: uint8 images, or float32.
        targets: (N,) integers in 0 .. len(classes) - 1, or numbers.
        classes: the classes' names; None: the targets are numbers.
        train: how many of the N are the training part; the rest are the dataset's own test set.
        groups: of the training samples, (train,) integers: those of one group are held out
            together; None: every sample is for itself.
        times: of the training samples, (train,) numbers or dates: those that are held out come
            after those that are trained on; None: they have no order.
        columns: of a table, what each feature is: [{"name": str, "category": the text of which it
            is the indicator, or None}, ...]; None: it is no table.
        dtype: of the chunks.
    """

    shape: tuple
    chunks: object
    targets: np.ndarray
    classes: list | None
    train: int
    groups: np.ndarray | None = None
    times: np.ndarray | None = None
    columns: list | None = None
    dtype: type = np.uint8


@dataclass
class Dataset:
    """An opened dataset.

    Attributes:
        inputs: (N, ...) uint8 or float32, memory-mapped; images are uint8, (N, C, H, W).
        targets: (N,) int64 of classes, float64 of numbers.
        pixel_sums: (N, 2, C) int64, each image's sum of pixels and of squared pixels per channel;
            None: they are no images of uint8.
        groups: as of Samples, int64.
        times: of the training samples, (train,) int64, from 0 without a gap; None: as of Samples.
        info: the content of dataset.json: made_from, shape, dtype, train, classes,
            columns, sha256.
    """

    inputs: np.ndarray
    targets: np.ndarray
    pixel_sums: np.ndarray | None
    groups: np.ndarray | None
    times: np.ndarray | None
    info: dict

    @property
    def shape(self):
        """That of a sample."""
        return tuple(self.info["shape"][1:])

    @property
    def classes(self):
        """Their names; None: the targets are numbers."""
        return self.info["classes"]

    @property
    def outputs(self):
        """How many a network has: one per class, or one for a number."""
        return len(self.classes or [None])


def write(folder, source, made_from=""):
    """Write a dataset: new files first, which then replace the old ones; dataset.json last.

    A process that has the old arrays mapped keeps them.

    Args:
        folder: where; it is made if need be.
        source: the Samples.
        made_from: kept in dataset.json, to tell whether the dataset has to be made anew.

    Raises:
        ValueError: inputs and targets do not fit together.
        OSError: a file cannot be written, for instance because the disk is full.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"targets": _checked(source)}
    if source.groups is not None:
        arrays["groups"] = np.asarray(source.groups, np.int64)
    if source.times is not None:
        arrays["times"] = np.unique(source.times, return_inverse=True)[1].astype(np.int64)
    beside = {"inputs.npy": folder / "inputs.npy.part"}
    try:
        pixel_sums = _write_inputs(beside["inputs.npy"], source)
        if pixel_sums is not None:
            arrays["pixel_sums"] = pixel_sums
        for name, array in arrays.items():
            beside[f"{name}.npy"] = folder / f"{name}.npy.part"
            with beside[f"{name}.npy"].open("wb") as file:
                np.save(file, array)
    except BaseException:
        for file in beside.values():
            file.unlink(missing_ok=True)
        raise
    info = {
        "made_from": made_from,
        "shape": list(source.shape),
        "train": source.train,
        "classes": source.classes and [str(name) for name in source.classes],
        "columns": source.columns,
        "dtype": np.dtype(source.dtype).name,
        "sha256": {name: sha256(file) for name, file in beside.items()},
    }
    (folder / "dataset.json").unlink(missing_ok=True)
    for name, file in beside.items():
        file.replace(folder / name)
    write_info(folder, info)


def _checked(source):
    """The targets of Samples, as they are written.

    Raises:
        ValueError: they do not fit the inputs.
    """
    targets = np.asarray(source.targets, np.float64 if source.classes is None else np.int64)
    if len(targets) != source.shape[0]:
        raise ValueError(f"{source.shape[0]} samples, but {len(targets)} targets")
    if source.classes is not None and (
        len(targets) == 0 or targets.min() < 0 or targets.max() >= len(source.classes)
    ):
        raise ValueError(f"labels must be one per sample, in 0..{len(source.classes) - 1}")
    if not 1 <= source.train <= len(targets):
        raise ValueError(
            f"{source.train} of {len(targets)} samples to train on; expected 1 at least"
        )
    return targets


def _write_inputs(path, source):
    """Write the inputs of Samples; returns the pixel_sums of images, or None."""
    inputs = np.lib.format.open_memmap(path, mode="w+", dtype=source.dtype, shape=source.shape)
    with path.open("r+b") as file:  # a full disk is an error here, and a bus error in a mapping
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    of_images = inputs.dtype == np.uint8
    pixel_sums = np.empty((source.shape[0], 2, source.shape[1]), np.int64) if of_images else None
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


def open_dataset(folder):
    """Open a dataset that write() made.

    Raises:
        ValueError: a file is missing, or differs from what was written.
    """
    folder = Path(folder)
    info = read_info(folder)
    digests = KeptDigests(folder / "digests.json")
    for name, written in info["sha256"].items():
        found = digests.of(folder / name) if (folder / name).exists() else "no such file"
        if found != written:
            raise ValueError(
                f"{folder / name} is not what was prepared: its SHA-256 should be "
                f"{written}, found {found}. Delete the folder {folder} to prepare the "
                "dataset anew"
            )
    digests.save()
    return Dataset(
        # Copy-on-write: torch wants writable memory, and nothing written may reach the file.
        inputs=np.load(folder / "inputs.npy", mmap_mode="c"),
        **{
            name: np.load(folder / f"{name}.npy") if f"{name}.npy" in info["sha256"] else None
            for name in ("targets", "pixel_sums", "groups", "times")
        },
        info=info,
    )


def write_info(folder, info):
    """Write dataset.json with a checksum of its own."""
    content = info | {"checksum": checksum(info)}
    write_text(Path(folder) / "dataset.json", json.dumps(content, indent=1))


def read_info(folder):
    """What dataset.json says.

    Raises:
        ValueError: there is none, or it was edited.
    """
    file = Path(folder) / "dataset.json"
    try:
        info = json.loads(file.read_text())
        sound = info.pop("checksum") == checksum(info)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} holds no prepared dataset: {file} is missing") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise ValueError(f"{file} is damaged. Delete the folder {folder} to prepare it anew")
    return info


def channel_statistics(pixel_sums, shape):
    """Mean and standard deviation per channel, of pixels in 0..1.

    Args:
        pixel_sums: (n, 2, C) int64, of the images to average over.
        shape: (N, C, H, W).

    Returns:
        (mean, std), (C,) float64 each; std is 1 where all pixels are equal.
    """
    pixels = len(pixel_sums) * shape[2] * shape[3]
    # Python's integers: exact, so that images of one colour have a spread of zero and not almost.
    sums, squares = pixel_sums.sum(axis=0).astype(object)
    mean = (sums / pixels).astype(float) / 255
    std = np.sqrt(((pixels * squares - sums**2) / pixels**2).astype(float)) / 255
    return mean, np.where(std > 0, std, 1.0)
