"""Datasets on disk: written once, checked whenever they are opened, memory-mapped by every run.

A dataset is a folder of images.npy, labels.npy, pixel_sums.npy and dataset.json.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from allcores.files import KeptDigests, checksum, sha256, write_text

ARRAYS = ("images.npy", "labels.npy", "pixel_sums.npy")


@dataclass(frozen=True)
class Metadata:
    """What is known of a dataset before it is loaded.

    Attributes:
        train, test: numbers of images in the training part and in its own test set.
        smallest_class: images of the training part's rarest class.
        shape: (C, H, W) of an image.
        classes: how many there are.
    """

    train: int
    test: int
    smallest_class: int
    shape: tuple
    classes: int

    @property
    def size(self):
        return min(self.shape[1:])


@dataclass
class Images:
    """What a dataset's load() gives.

    Attributes:
        shape: (N, C, H, W) of all images; the training part comes first.
        chunks: iterable of consecutive (n, C, H, W) uint8 arrays, N images in all.
        labels: (N,) integers in 0 .. len(classes) - 1.
        classes: the classes' names.
        train: how many of the N are the training part; the rest are the dataset's own test set.
    """

    shape: tuple
    chunks: object
    labels: np.ndarray
    classes: list
    train: int


@dataclass
class Dataset:
    """An opened dataset.

    Attributes:
        images: (N, C, H, W) uint8, memory-mapped.
        labels: (N,) int64.
        pixel_sums: (N, 2, C) int64, each image's sum of pixels and of squared pixels per channel.
        info: the content of dataset.json: made_from, shape, train, classes, mean, std, sha256.
    """

    images: np.ndarray
    labels: np.ndarray
    pixel_sums: np.ndarray
    info: dict

    @property
    def model_arguments(self):
        """What a model has to know of it."""
        _, channels, height, width = self.info["shape"]
        return {
            "channels": channels,
            "image_size": (height, width),
            "classes": len(self.info["classes"]),
        }


def write(folder, source, made_from=""):
    """Write a dataset: new files first, which then replace the old ones; dataset.json last.

    A process that has the old arrays mapped keeps them.

    Args:
        folder: where; it is made if need be.
        source: the Images.
        made_from: kept in dataset.json, to tell whether the dataset has to be made anew.

    Raises:
        ValueError: the images and labels do not fit together.
        OSError: a file cannot be written, for instance because the disk is full.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.asarray(source.labels, dtype=np.int64)
    if len(labels) != source.shape[0]:
        raise ValueError(f"{source.shape[0]} images, but {len(labels)} labels")
    if len(labels) == 0 or labels.min() < 0 or labels.max() >= len(source.classes):
        raise ValueError(f"labels must be one per image, in 0..{len(source.classes) - 1}")
    if not 1 <= source.train <= len(labels):
        raise ValueError(f"{source.train} of {len(labels)} images to train on; expected 1 at least")
    beside = {name: folder / f"{name}.part" for name in ARRAYS}
    try:
        pixel_sums = _write_images(beside["images.npy"], source)
        for name, array in (("labels.npy", labels), ("pixel_sums.npy", pixel_sums)):
            with beside[name].open("wb") as file:
                np.save(file, array)
    except BaseException:
        for file in beside.values():
            file.unlink(missing_ok=True)
        raise
    mean, std = channel_statistics(pixel_sums[: source.train], source.shape)
    info = {
        "made_from": made_from,
        "shape": list(source.shape),
        "train": source.train,
        "classes": [str(name) for name in source.classes],
        "mean": mean.tolist(),
        "std": std.tolist(),
        "sha256": {name: sha256(file) for name, file in beside.items()},
    }
    (folder / "dataset.json").unlink(missing_ok=True)
    for name, file in beside.items():
        file.replace(folder / name)
    write_info(folder, info)


def _write_images(path, source):
    """Write the images of a source; returns their pixel_sums, (N, 2, C) int64."""
    images = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=source.shape)
    with path.open("r+b") as file:  # a full disk is an error here, and a bus error in a mapping
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    pixel_sums = np.empty((source.shape[0], 2, source.shape[1]), np.int64)
    start = 0
    for chunk in source.chunks:
        rows = slice(start, start + len(chunk))
        images[rows] = chunk
        wide = chunk.astype(np.int64)
        pixel_sums[rows, 0], pixel_sums[rows, 1] = wide.sum(axis=(2, 3)), (wide**2).sum(axis=(2, 3))
        start += len(chunk)
    assert start == source.shape[0], "a dataset's chunks must add up to its shape"
    images.flush()
    return pixel_sums


def open_dataset(folder):
    """Open a dataset that write() made.

    Raises:
        ValueError: a file is missing, or differs from what was written.
    """
    folder = Path(folder)
    info = read_info(folder)
    digests = KeptDigests(folder / "digests.json")
    for name in ARRAYS:
        found = digests.of(folder / name) if (folder / name).exists() else "no such file"
        if found != info["sha256"][name]:
            raise ValueError(
                f"{folder / name} is not what was prepared: its SHA-256 should be "
                f"{info['sha256'][name]}, found {found}. Delete the folder {folder} to prepare the "
                "dataset anew"
            )
    digests.save()
    return Dataset(
        # Copy-on-write: torch wants writable memory, and nothing written may reach the file.
        images=np.load(folder / "images.npy", mmap_mode="c"),
        labels=np.load(folder / "labels.npy"),
        pixel_sums=np.load(folder / "pixel_sums.npy"),
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
