"""Your own image files: one folder per class.

`path/train/` and `path/test/` each hold one folder per class; without them `path` itself does, and
the dataset has no test set. Images may be in subfolders; other files are ignored.
"""

import warnings
from pathlib import Path

import numpy as np

from allcores.data.preparation import files_below
from allcores.data.storage import Metadata, Samples

CHUNK = 64  # images read at a time
ALLOWED = {"size": 1}
SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
# Names of parts, which are not classes.
PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}


def metadata(path, size=224):
    try:
        parts = _parts(path)
    except (ValueError, OSError):
        return None  # load() will report that
    counts = [len(files) for files in parts[0].values()]
    return Metadata(
        train=sum(counts),
        test=sum(map(len, parts[1].values())) if len(parts) == 2 else 0,
        smallest_class=min(counts),
        shape=(3, size, size),
        classes=len(counts),
    )


def load(folder, *, path, size=224):
    """The images in the folder at path, cropped at the centre and scaled to size x size.

    Raises:
        ValueError: there is no such folder, it has no class folders, or an image is unreadable.
    """
    parts = _parts(path)
    classes = list(parts[0])
    samples = [
        (file, classes.index(name)) for part in parts for name in part for file in part[name]
    ]
    return Samples(
        shape=(len(samples), 3, size, size),
        chunks=(
            np.stack([read_image(file, size) for file, _ in samples[start : start + CHUNK]])
            for start in range(0, len(samples), CHUNK)
        ),
        targets=np.array([label for _, label in samples]),
        classes=classes,
        train=sum(map(len, parts[0].values())),
    )


def _parts(path):
    """[{class: its images}, ...]: one for training and, if there is one, one for testing.

    Raises:
        ValueError: path is not as this module's docstring says.
    """
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"{path}: no such folder")
    names = {folder.name for folder in path.iterdir() if folder.is_dir()}
    if {name.lower() for name in names} & PARTS and not {"train", "test"} <= names:
        raise ValueError(
            f"{path}: found the folders {', '.join(sorted(names))}; expected train and test, or "
            "one folder per class"
        )
    folders = [path / "train", path / "test"] if {"train", "test"} <= names else [path]
    parts = [_classes(folder) for folder in folders]
    if list(parts[0]) != list(parts[-1]):
        raise ValueError(
            f"{path}: train/ and test/ have different classes: "
            f"{', '.join(sorted(set(parts[0]) ^ set(parts[1])))}"
        )
    return parts


def _classes(folder):
    classes = {
        subfolder.name: _images(subfolder)
        for subfolder in sorted(folder.iterdir())
        if subfolder.is_dir()
    }
    unprintable = [name for name in classes if not name.isprintable()]
    if unprintable:
        raise ValueError(f"{folder}: found the class {unprintable[0]!r}; expected names in UTF-8")
    empty = [name for name, files in classes.items() if not files]
    if len(classes) < 2 or empty:
        problem = f"no image in {', '.join(empty)}" if empty else f"{len(classes)} folder(s) in it"
        raise ValueError(
            f"{folder}: {problem}; expected at least two folders, one class of images in each"
        )
    return classes


def _images(folder):
    return [file for file in files_below(folder) if file.suffix.lower() in SUFFIXES]


def read_image(file, size):
    """The image in a file, (3, size, size) uint8.

    Raises:
        ValueError: it cannot be read.
    """
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(file) as image:
                if image.mode.startswith(("I", "F")):
                    raise ValueError(f"mode {image.mode}; expected 8 bits per channel")
                fitted = ImageOps.fit(image.convert("RGB"), (size, size))
        except Exception as error:  # as various as damaged images are
            raise ValueError(f"{file}: {error}") from None
    return np.asarray(fitted).transpose(2, 0, 1)
