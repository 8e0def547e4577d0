"""New samples for a trained network: from arrays, a folder of images, or a prepared dataset."""

from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from allcores.data import storage
from allcores.data.preparation import files_below
from allcores.datasets import image_folder


@dataclass(frozen=True)
class Samples:
    """Images to predict.

    Attributes:
        names: of the samples, (n,): their files, or numbers from 0.
        images: (n, C, H, W) uint8.
        true: the class of each, (n,) int64; None: it is not known.
    """

    names: list
    images: np.ndarray
    true: np.ndarray | None


def read(path, shape, classes):
    """The Samples at a path: a .npz with `images` and perhaps `labels`, a .npy of images, a folder
    of images, perhaps in one folder per class, or the folder of a prepared dataset.

    Args:
        shape: (C, H, W) of an image, to which files of images are scaled.
        classes: the classes' names, in the order of their numbers.

    Raises:
        ValueError: there is nothing of that kind.
    """
    path = Path(path)
    if (path / "dataset.json").is_file():
        dataset = storage.open_dataset(path)
        return Samples(list(range(len(dataset.labels))), dataset.images, dataset.labels)
    if path.is_dir():
        return _from_files(path, shape, classes)
    if path.suffix not in (".npz", ".npy") or not path.is_file():
        raise ValueError(f"{path}: expected a .npz, a .npy, or a folder of images or of a dataset")
    try:
        found = np.load(path)
        arrays = {"images": found} if path.suffix == ".npy" else dict(found)
    except (ValueError, OSError, BadZipFile) as error:
        raise ValueError(f"{path}: not what numpy writes ({error})") from None
    if "images" not in arrays:
        raise ValueError(f"{path}: has no array images; found {', '.join(arrays) or 'none'}")
    images, true = arrays["images"], arrays.get("labels")
    if images.ndim not in (3, 4) or 0 in images.shape:
        raise ValueError(
            f"{path}: images must be (N, H, W) or (N, C, H, W), nothing of it 0; "
            f"found {images.shape}"
        )
    images = images[:, None] if images.ndim == 3 else images
    if true is not None and (
        true.shape != (len(images),)
        or true.dtype.kind not in "iu"
        or not 0 <= true.min() <= true.max() < len(classes)
    ):
        raise ValueError(
            f"{path}: labels must be ({len(images)},) integers from 0 to {len(classes) - 1}; "
            f"found {true.dtype}, {true.shape}"
        )
    return Samples(list(range(len(images))), images, true)


def _from_files(folder, shape, classes):
    files = [file for file in files_below(folder) if file.suffix.lower() in image_folder.SUFFIXES]
    if not files:
        raise ValueError(f"{folder}: there is no image in it")
    if shape[0] != 3 or shape[1] != shape[2]:
        raise ValueError(f"{folder}: the run was trained on {shape}, not on files of images")
    names = [file.relative_to(folder) for file in files]
    images = np.stack([image_folder.read_image(file, shape[1]) for file in files])
    above = [name.parts[0] for name in names]
    known = set(above) <= set(classes)
    true = np.array([classes.index(name) for name in above]) if known else None
    return Samples(list(map(str, names)), images, true)
