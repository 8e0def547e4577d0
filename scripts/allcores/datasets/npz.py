"""Your own arrays, in a file that numpy.savez wrote.

It holds `images`, uint8, (N, H, W) or (N, C, H, W), and `labels`, (N,) integers from 0, of which
each up to the largest comes among the training images; and, for a test set of your own,
`test_images` and `test_labels`.
"""

from pathlib import Path

import numpy as np
from numpy.lib import format

from allcores.data.storage import Images, Metadata

PARTS = ("", "test_")
# As many channels as the last axis of (N, H, W, C) has; a second axis larger than that is a height.
MOST_COLOURS = 4


def metadata(path):
    try:
        shapes, labels = _checked(path)
    except (ValueError, OSError):
        return None  # load() will say it when it is its turn
    counts = np.bincount(labels[0])
    return Metadata(
        train=len(labels[0]),
        test=sum(map(len, labels[1:])),
        smallest_class=int(counts.min()),
        shape=shapes[0][1:],
        classes=len(counts),
    )


def load(folder, *, path):
    """The arrays in the file at path.

    Raises:
        ValueError: the file lacks an array, or one has another shape, type or values.
    """
    shapes, labels = _checked(path)
    arrays = [_read(path, f"{prefix}images") for prefix in PARTS[: len(shapes)]]
    return Images(
        shape=(sum(map(len, labels)), *shapes[0][1:]),
        chunks=[array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)],
        labels=np.concatenate(labels),
        classes=list(range(int(labels[0].max()) + 1)),
        train=len(labels[0]),
    )


def _checked(path):
    """The shapes (N, C, H, W) and the labels of each part, the images themselves left unread."""
    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file")
    names = _read(path)
    parts = PARTS if "test_images" in names or "test_labels" in names else PARTS[:1]
    for name in (f"{prefix}{kind}" for prefix in parts for kind in ("images", "labels")):
        if name not in names:
            raise ValueError(f"{path}: has no array {name}; found {', '.join(names) or 'none'}")
    shapes = [_shape(path, prefix) for prefix in parts]
    if len({shape[1:] for shape in shapes}) > 1:
        raise ValueError(f"{path}: images and test_images differ in shape")
    labels = [_labels(path, prefix, shape[0]) for prefix, shape in zip(parts, shapes, strict=True)]
    classes = np.unique(labels[0])
    if len(classes) < 2 or classes[-1] != len(classes) - 1:
        missing = next((k for k, found in enumerate(classes) if k != found), len(classes))
        raise ValueError(
            f"{path}: labels must be 0, 1, ... with an image for each, two at least; found "
            f"{len(classes)} different ones up to {classes[-1]}, none of them {missing}"
        )
    if len(labels) == 2 and labels[1].max() > classes[-1]:
        raise ValueError(
            f"{path}: test_labels up to {labels[1].max()}; the training images have 0 to "
            f"{classes[-1]}"
        )
    return shapes, labels


def _shape(path, prefix):
    dtype, shape = _read(path, f"{prefix}images", header_only=True)
    if dtype != np.uint8 or len(shape) not in (3, 4) or 0 in shape:
        raise ValueError(
            f"{path}: {prefix}images must be uint8, (N, H, W) or (N, C, H, W), nothing of it 0; "
            f"found {dtype}, {shape}"
        )
    if len(shape) == 4 and shape[3] <= MOST_COLOURS < shape[1]:
        raise ValueError(
            f"{path}: {prefix}images has the shape {shape}, with the channels last; expected "
            "(N, C, H, W): images.transpose(0, 3, 1, 2)"
        )
    return shape if len(shape) == 4 else (shape[0], 1, *shape[1:])


def _labels(path, prefix, count):
    labels = _read(path, f"{prefix}labels")
    if labels.shape != (count,) or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise ValueError(
            f"{path}: {prefix}labels must be ({count},) integers from 0; "
            f"found {labels.dtype}, {labels.shape}"
        )
    if labels.max() >= count:
        raise ValueError(f"{path}: {prefix}labels up to {labels.max()} for {count} images")
    return labels.astype(np.int64)


def _read(path, name=None, header_only=False):
    """An array of the file; its (dtype, shape) only; or, without a name, the names of all."""
    try:
        with np.load(path) as file:
            if name is None:
                return list(file)
            if not header_only:
                return file[name]
            with file.zip.open(f"{name}.npy") as member:
                version = format.read_magic(member)
                read = format.read_array_header_1_0
                shape, _, dtype = (read if version == (1, 0) else format.read_array_header_2_0)(
                    member
                )
                return dtype, shape
    except Exception as error:  # whatever zipfile, zlib and numpy say of a damaged file
        raise ValueError(f"{path}: not a file that numpy.savez wrote ({error})") from None
