"""Your own arrays, in a file that numpy.savez wrote.

It holds `images`, uint8, (N, H, W) or (N, C, H, W), and `labels`, (N,) integers from 0; and, for a
test set of your own, `test_images` and `test_labels`.
"""

from pathlib import Path

import numpy as np

from allcores.data import Images, Outline


def outline(path):
    try:
        images = load(None, path=path)
    except ValueError:
        return None  # load() will say it when it is its turn
    counts = np.bincount(images.labels[: images.train])
    return Outline(
        train=images.train,
        test=len(images.labels) - images.train,
        smallest_class=int(counts[counts > 0].min()),
        size=min(images.shape[2:]),
    )


def load(folder, *, path):
    """The arrays in the file at path.

    Raises:
        ValueError: the file lacks an array, or one has another shape or type.
    """
    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file")
    try:
        with np.load(path) as file:
            arrays = dict(file)
    except Exception as error:  # whatever zipfile, zlib and numpy say of a damaged file
        raise ValueError(f"{path}: not a file that numpy.savez wrote ({error})") from None
    parts = [_part(path, arrays, "")]
    if "test_images" in arrays:
        parts.append(_part(path, arrays, "test_"))
    images = [images for images, _ in parts]
    if len({part.shape[1:] for part in images}) > 1:
        raise ValueError(f"{path}: images and test_images differ in shape")
    labels = np.concatenate([labels for _, labels in parts])
    return Images(
        shape=(len(labels), *images[0].shape[1:]),
        chunks=images,
        labels=labels,
        classes=list(range(int(labels.max(initial=0)) + 1)),
        train=len(images[0]),
    )


def _part(path, arrays, prefix):
    for name in (f"{prefix}images", f"{prefix}labels"):
        if name not in arrays:
            raise ValueError(f"{path}: has no array {name}; found {', '.join(arrays)}")
    images, labels = arrays[f"{prefix}images"], arrays[f"{prefix}labels"]
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or len(images) == 0:
        raise ValueError(
            f"{path}: {prefix}images must be uint8, (N, H, W) or (N, C, H, W), N > 0; "
            f"found {images.dtype}, {images.shape}"
        )
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu" or labels.min() < 0:
        raise ValueError(
            f"{path}: {prefix}labels must be ({len(images)},) integers from 0; "
            f"found {labels.dtype}, {labels.shape}"
        )
    return (images if images.ndim == 4 else images[:, None]), labels
