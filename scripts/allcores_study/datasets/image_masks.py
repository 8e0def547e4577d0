"""Your own images with a mask each: a class for every pixel.

One folder holds the images, the other the masks, in files with the same names except for the
extension. A mask is an image with one channel or a palette whose values are class numbers from 0;
255 stands for no class.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from allcores_study.data.facts import Facts
from allcores_study.data.storage import Samples
from allcores_study.datasets import image_folder
from allcores_study.tasks import base as tasks
from allcores_study.tasks.base import WITHOUT_CLASS

TASK = "segmentation"
PATHS = ("path", "masks")
ALLOWED = {"size": 1}
CHUNK = 64  # images read at a time
PLAIN_MODES = ("1", "L", "P")
LOSSY = ("JPEG", "MPO", "JPEG2000", "WEBP", "AVIF")


def facts(path: str, masks: str, classes: list[Any], size: int = 128) -> Facts | None:
    names = _names(path, classes)
    try:
        pairs = _pairs(path, masks)
    except (ValueError, OSError):
        return None  # load() will report that
    return Facts(len(pairs), 0, (3, size, size), task=TASK, outputs=len(names), names=names)


def _names(path: str, classes: Any) -> list[str]:
    """Return the names of the classes.

    Raises:
        ValueError: they are not a list of 2 to 255 different texts.
    """
    are_texts = isinstance(classes, list) and all(isinstance(name, str | int) for name in classes)
    names = list(map(str, classes)) if are_texts else []
    if not 2 <= len(set(names)) == len(names) <= WITHOUT_CLASS:
        raise ValueError(
            f"{path}: found classes {classes}; expected a list of 2 to {WITHOUT_CLASS} different "
            "names"
        )
    return names


def load(folder: Path, *, path: str, masks: str, classes: list[Any], size: int = 128) -> Samples:
    """Images and masks, cropped at the centre and scaled to size x size without mixing classes.

    Args:
        classes: names of the classes, in the order of their numbers.

    Raises:
        ValueError: there is no such folder, a file has no partner, or a mask has other values.
    """
    names = _names(path, classes)
    pairs = _pairs(path, masks)
    for pair in pairs:
        _refuse_other_shape(*pair)
    targets = np.stack([_read_mask(mask, size, len(names)) for _, mask in pairs])
    task: Any = tasks.named(TASK, len(names))  # which has notes, as other tasks have not
    notes = list(task.notes(targets, names))
    found = np.unique(targets[targets != WITHOUT_CLASS])
    if len(found) < 2:
        one = f"the class {names[found[0]]}" if len(found) else "no class"
        raise ValueError(f"{masks}: all pixels of all masks have {one}; expected at least two")
    return Samples(
        shape=(len(pairs), 3, size, size),
        chunks=(
            np.stack([image_folder.read_image(image, size) for image, _ in part])
            for part in (pairs[start : start + CHUNK] for start in range(0, len(pairs), CHUNK))
        ),
        targets=targets,
        train=len(pairs),
        task=task,
        names=names,
        notes=notes,
    )


def _pairs(path: str, masks: str) -> list[tuple[Path, Path]]:
    """Return [(image, mask), ...], matched by their names.

    Raises:
        ValueError: a folder is missing, or a file has no partner.
    """
    found = []
    for folder in map(Path, (path, masks)):
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such folder")
        files = image_folder.images_below(folder)
        named = {str(file.relative_to(folder).with_suffix("")): file for file in files}
        if len(named) < len(files):
            raise ValueError(f"{folder}: has files whose names differ only in the extension")
        found.append(named)
    images, answers = found
    if alone := sorted(images.keys() ^ answers.keys()):
        kind, other = ("image", masks) if alone[0] in images else ("mask", path)
        raise ValueError(
            f"the {kind} {alone[0]} has no partner in {other} ({len(alone)} such files)"
        )
    if not images:
        raise ValueError(f"{path}: there is no image in it")
    return [(images[name], answers[name]) for name in sorted(images)]


def _refuse_other_shape(image: Path, mask: Path) -> None:
    """Check that an image and its mask, each turned upright, have the same aspect up to a pixel."""
    from PIL import Image

    sizes = []
    for file in (image, mask):
        try:
            with Image.open(file) as opened:
                # Orientation, which Pillow takes into account in the size of a TIFF.
                is_turned = opened.format != "TIFF" and opened.getexif().get(0x0112, 1) > 4
                sizes.append(opened.size[::-1] if is_turned else opened.size)
        except Exception as error:  # damaged images raise many kinds of errors
            raise ValueError(f"{file}: {error}") from None
    (width, height), (mask_width, mask_height) = sizes
    if abs(width * mask_height - height * mask_width) > max(width, height, mask_width, mask_height):
        raise ValueError(
            f"{image} is {width} x {height} pixels and its mask {mask} {mask_width} x "
            f"{mask_height}; expected the same shape"
        )


def _read_mask(file: Path, size: int, classes: int) -> np.ndarray:
    """Return the mask in a file, (size, size) uint8.

    Raises:
        ValueError: it cannot be read, or has a number that is not a class.
    """
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(file) as image:
                if image.format in LOSSY:
                    raise ValueError(
                        f"{image.format} loses the exact class numbers; expected PNG, or another "
                        "lossless format"
                    )
                if image.mode not in PLAIN_MODES:
                    raise ValueError(f"mode {image.mode}; expected one channel of class numbers")
                turned = ImageOps.exif_transpose(image)
                fitted = ImageOps.fit(turned, (size, size), method=Image.Resampling.NEAREST)
                mask = np.asarray(fitted).astype(np.uint8)
        except Exception as error:  # damaged images raise many kinds of errors
            raise ValueError(f"{file}: {error}") from None
    try:
        return tasks.named(TASK, classes).checked(mask[None])[0]
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
