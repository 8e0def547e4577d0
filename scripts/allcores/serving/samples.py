"""New samples for a trained network: arrays, a table, a folder of images, a prepared dataset."""

from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from allcores.data import storage
from allcores.data.preparation import files_below
from allcores.datasets import image_folder, table


@dataclass(frozen=True)
class Samples:
    """What is to be predicted.

    Attributes:
        names: of the samples, (n,): their files, or numbers from 0.
        inputs: (n, ...) uint8 images, or float32.
        true: the class of each, (n,) int64, or number, float64; None: it is not known.
    """

    names: list
    inputs: np.ndarray
    true: np.ndarray | None


def read(path, predictor):
    """The Samples at a path: a .npz with `images` or `inputs` and perhaps `labels` or `targets`, a
    .npy, a .csv or .parquet, a folder of images, perhaps in one folder per class, or the folder of
    a prepared dataset.

    Args:
        predictor: Predictor of the run, which knows what it was trained on.

    Raises:
        ValueError: there is nothing of that kind.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path}: there is no such file or folder")
    if (path / "dataset.json").is_file():
        dataset = storage.open_dataset(path)
        return Samples(list(range(len(dataset.targets))), dataset.inputs, dataset.targets)
    if path.is_dir():
        return _from_files(path, predictor.shape, predictor.classes)
    if path.suffix in table.READERS and predictor.columns:
        return _from_table(path, predictor)
    if path.suffix not in (".npz", ".npy") or not path.is_file():
        raise ValueError(
            f"{path}: expected a .npz, a .npy, a folder of images or of a dataset, or, where the "
            "run was trained on a table, a .csv or .parquet"
        )
    try:
        found = np.load(path)
        arrays = {"inputs": found} if path.suffix == ".npy" else dict(found)
    except (ValueError, OSError, BadZipFile) as error:
        raise ValueError(f"{path}: not what numpy writes ({error})") from None
    return _from_arrays(path, arrays, predictor)


def _from_arrays(path, arrays, predictor):
    inputs = arrays.get("inputs", arrays.get("images"))
    if inputs is None:
        raise ValueError(
            f"{path}: has no array inputs or images; found {', '.join(arrays) or 'none'}"
        )
    if predictor.dtype == "uint8" and inputs.ndim == 3:
        inputs = inputs[:, None]
    if inputs.ndim != len(predictor.shape) + 1 or 0 in inputs.shape:
        raise ValueError(
            f"{path}: expected (N, {', '.join(map(str, predictor.shape))}), nothing of it 0; found "
            f"{inputs.shape}"
        )
    if predictor.dtype == "float32" and inputs.dtype.kind in "fiub":
        with np.errstate(over="ignore"):
            inputs = inputs.astype(np.float32)
        if not np.isfinite(inputs).all():
            place = np.argwhere(~np.isfinite(inputs))[0].tolist()
            raise ValueError(f"{path}: at {place} there is no finite number that float32 can hold")
    count, classes = len(inputs), predictor.classes
    true = arrays.get("targets" if classes is None else "labels")
    if true is not None and true.shape != (count,):
        raise ValueError(f"{path}: expected one answer for each of {count}; found {true.shape}")
    if true is not None and classes is not None:
        is_class = true.dtype.kind in "iu" and 0 <= true.min() <= true.max() < len(classes)
        if not is_class:
            raise ValueError(
                f"{path}: labels must be ({count},) integers from 0 to {len(classes) - 1}; "
                f"found {true.dtype}, {true.shape}"
            )
    return Samples(list(range(count)), inputs, true)


def _from_table(path, predictor):
    """The features that the run was trained on; its target, too, if there is such a column."""
    # As they were written when the run was trained: another table may have numbers only.
    texts = {column["name"] for column in predictor.columns if column["category"] is not None}
    truths = {each["name"] for each in predictor.columns if each["category"] in ("False", "True")}
    frame = table.read(path, texts - truths)
    if frame.empty:
        raise ValueError(f"{path}: has no rows")
    inputs, true = table.encoded(path, frame, predictor.columns), None
    options = predictor.run.dataset.options
    if options.get("missing", "error") == "error":
        names = {column["name"] for column in predictor.columns}
        table.refuse_missing(path, frame[sorted(names)], "none was when the run was trained")
    target = options.get("target")
    if target not in frame or frame[target].isna().any():
        return Samples(list(range(len(inputs))), inputs, None)
    if predictor.classes is None:
        true = table.numbers(path, frame[target])
    else:
        known = {name: number for number, name in enumerate(predictor.classes)}
        unknown = sorted(set(frame[target].astype(str)) - set(known))
        if unknown:
            raise ValueError(
                f"{path}: the column {target} holds {unknown[0]}; the run knows "
                f"{', '.join(predictor.classes)}"
            )
        true = frame[target].astype(str).map(known).to_numpy(np.int64)
    return Samples(list(range(len(inputs))), inputs, true)


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
