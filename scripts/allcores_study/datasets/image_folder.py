"""Your own image files: one folder per class.

`path/train/` and `path/test/` each hold one folder per class. Without them `path` itself does, and
the dataset has no test set. Images may be in subfolders. Other files and hidden ones are ignored.
Images are turned by their EXIF orientation, and transparent pixels become white.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from allcores_study.data.facts import Facts
from allcores_study.data.preparation import files_below
from allcores_study.data.storage import Samples
from allcores_study.tasks import base as tasks

if TYPE_CHECKING:
    from PIL import Image

CHUNK = 64  # images read at a time
ALLOWED = {"size": 1}
SUFFIXES = {".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff"}
SUFFIXES |= {".webp"}
# Images that Pillow does not read everywhere, or that do not consist of pixels.
UNREADABLE = {".avif", ".cr2", ".dng", ".heic", ".heif", ".jp2", ".jxl", ".nef", ".psd", ".svg"}
# Names of folders that are parts, not classes.
PARTS = {"train", "training", "val", "valid", "validation", "test", "testing"}


def facts(path: str, size: int = 224) -> Facts | None:
    try:
        parts = _parts(path)
    except (ValueError, OSError):
        return None  # load() will report that
    counts = [len(files) for files in parts[0].values()]
    return Facts(
        train=sum(counts),
        test=sum(map(len, parts[1].values())) if len(parts) == 2 else 0,
        shape=(3, size, size),
        outputs=len(counts),
        names=list(parts[0]),
        class_counts=counts,
    )


def load(folder: Path, *, path: str, size: int = 224) -> Samples:
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
        task=tasks.named("classification", len(classes)),
        names=classes,
        train=sum(map(len, parts[0].values())),
        notes=list(_notes(Path(path), [file for file, _ in samples])),
    )


def _notes(path: Path, images: list[Path]) -> Iterator[str]:
    """Yield sentences on what is not read, or not read as one may expect."""
    others = [file.suffix.lower() for file in _visible(path) if file.suffix.lower() in UNREADABLE]
    if others:
        yield f"not read: {len(others):,} files that end with {', '.join(sorted(set(others)))}"
    folders = _folders(path)
    unused = folders - {"train", "test"} if {"train", "test"} <= folders else ()
    if unused:
        yield (
            f"not used: {', '.join(f'{name}/' for name in sorted(unused))}; `validation: 0.1` in a "
            "model's entry holds samples back from training"
        )
    again = len(images) - len({_place_of(file) for file in images})
    if again:
        yield f"{again:,} of {len(images):,} images are links to other images"
    paged, transparent, deep = (sum(counts) for counts in zip(*map(_header, images), strict=True))
    if paged:
        yield f"{paged:,} of {len(images):,} images have several pages: the first is read"
    if transparent:
        yield f"{transparent:,} of {len(images):,} images are transparent: they are put on white"
    if deep:
        yield f"{deep:,} of {len(images):,} images have 16 bits per channel: 8 are used"


def _place_of(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_dev, status.st_ino


def _header(file: Path) -> tuple[bool, bool, bool]:
    """Return whether an image has (several pages or frames, transparency, 16 bits per channel).

    read_image() reports what cannot be read.
    """
    from PIL import Image

    try:
        with Image.open(file) as image:
            # 16 bits show only in how Pillow will decode them to 8, such as by RGB;16B.
            is_deep = any(";16" in str(tile) for tile in image.tile)
            return getattr(image, "n_frames", 1) > 1, _is_transparent(image), is_deep
    except Exception:  # damaged images raise many kinds of errors
        return False, False, False


def _is_transparent(image: Image.Image) -> bool:
    """Return whether some pixel is not opaque; many images have an alpha channel but none such."""
    if not image.has_transparency_data:
        return False
    return image.convert("RGBA").getchannel("A").getextrema()[0] < 255  # type: ignore[operator]


def _parts(path: str | Path) -> list[dict[str, list[Path]]]:
    """Return [{class: its images}, ...]: one for training and, if there is one, one for testing.

    Raises:
        ValueError: path is not as this module's docstring describes.
    """
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"{path}: no such folder")
    names = _folders(path)
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


def _classes(folder: Path) -> dict[str, list[Path]]:
    classes = {name: images_below(folder / name) for name in sorted(_folders(folder))}
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


def _folders(path: Path) -> set[str]:
    """Return the names of the folders in a folder, except hidden ones like .ipynb_checkpoints."""
    folders = {entry.name for entry in path.iterdir() if entry.is_dir()}
    return {name for name in folders if not name.startswith(".")}


def images_below(folder: Path) -> list[Path]:
    """Return the image files in a folder and its subfolders, sorted, except hidden ones."""
    return [file for file in _visible(folder) if file.suffix.lower() in SUFFIXES]


def _visible(folder: Path) -> list[Path]:
    def is_hidden(file: Path) -> bool:
        return any(part.startswith(".") for part in file.relative_to(folder).parts)

    return [file for file in files_below(folder) if not is_hidden(file)]


def read_image(file: Path, size: int) -> np.ndarray:
    """Return the image in a file, (3, size, size) uint8.

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
                fitted = ImageOps.fit(_on_white(ImageOps.exif_transpose(image)), (size, size))
        except Exception as error:  # damaged images raise many kinds of errors
            raise ValueError(f"{file}: {error}") from None
    return np.asarray(fitted).transpose(2, 0, 1)


def _on_white(image: Image.Image) -> Image.Image:
    """Return an image in red, green and blue, with white where it is transparent."""
    from PIL import Image

    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
