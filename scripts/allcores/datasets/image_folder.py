"""Your own image files: one folder per class (torchvision's ImageFolder).

`path/train/` and `path/test/` hold such folders each; without them, path itself does and there is
no test set of its own.
"""

from pathlib import Path

import numpy as np

from allcores.data import Images, Outline

CHUNK = 64  # images read at a time


def outline(path, size=224):
    parts = [
        [sum(file.is_file() for file in folder.rglob("*")) for folder in part.glob("*/")]
        for part in _parts(path)
    ]
    if not parts[0]:
        return None
    test = sum(parts[1]) if len(parts) == 2 else 0
    return Outline(train=sum(parts[0]), test=test, smallest_class=min(parts[0]), size=size)


def load(folder, *, path, size=224):
    """The images in the folder at path: the shorter side scaled to size, the middle cut out.

    Raises:
        ValueError: there is no such folder, it has no images, or one cannot be read.
    """
    from allcores.lean_torch import import_torchvision

    if not Path(path).is_dir():
        raise ValueError(f"{path}: no such folder")
    datasets = import_torchvision("datasets")
    try:
        parts = [datasets.ImageFolder(part) for part in _parts(path)]
    except FileNotFoundError as error:
        raise ValueError(f"{path}: {error}") from None
    if len(parts) == 2 and parts[0].classes != parts[1].classes:
        raise ValueError(f"{path}: train/ and test/ have different classes")
    samples = [sample for part in parts for sample in part.samples]
    return Images(
        shape=(len(samples), 3, size, size),
        chunks=(
            np.stack([_read(file, size) for file, _ in samples[start : start + CHUNK]])
            for start in range(0, len(samples), CHUNK)
        ),
        labels=np.array([label for _, label in samples]),
        classes=parts[0].classes,
        train=len(parts[0]),
    )


def _parts(path):
    parts = [Path(path) / "train", Path(path) / "test"]
    return parts if parts[0].is_dir() and parts[1].is_dir() else [Path(path)]


def _read(file, size):
    """(3, size, size) uint8."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as image:
            return np.asarray(ImageOps.fit(image.convert("RGB"), (size, size))).transpose(2, 0, 1)
    except OSError as error:
        raise ValueError(f"{file}: {error}") from None
