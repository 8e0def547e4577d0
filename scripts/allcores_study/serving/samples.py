"""New samples for a trained network: arrays, a table, a folder of images, a prepared dataset."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from allcores_study.data import storage
from allcores_study.datasets import _table_files, _table_notes, image_folder, npz, table, text

if TYPE_CHECKING:
    from allcores_study.serving.predictor import Predictor
    from allcores_study.tasks.base import Task

SHOWN = 5  # values in a message


@dataclass(frozen=True)
class NewSamples:
    """Samples to predict.

    Attributes:
        names: of the samples, (n,): their files, or numbers from 0.
        inputs: (n, ...) uint8 images, or float32; int32 numbers of tokens; (n,) texts.
        true: true classes, (n,) int64, or numbers, float64; None: unknown.
        notes: sentences on what may be unintended.
    """

    names: list[str] | list[int]
    inputs: np.ndarray
    true: np.ndarray | None
    notes: Sequence[str] = ()


def read(
    path: str | Path,
    predictor: Predictor,
    unknown_as_none: bool = False,
    unseen: Collection[int] = (),
) -> NewSamples:
    """Return the NewSamples at a path.

    That is a .npz with `images` or `inputs` and perhaps `labels` or `targets`, a .npy, a .csv or
    .parquet, an image, a folder of them, perhaps one per class, or the folder of a prepared
    dataset.

    Args:
        predictor: Predictor of a run that was trained on such samples.
        unknown_as_none, unseen: see table.encoded().

    Raises:
        ValueError: there are no such samples, or they do not fit the run.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    if (path / "dataset.json").is_file():
        return _from_dataset(path, predictor)
    if path.is_dir() or path.suffix.lower() in image_folder.SUFFIXES:
        return _from_files(path, predictor.shape, predictor.classes)
    if path.suffix in _table_files.READERS and predictor.columns:
        return _from_table(path, predictor, unknown_as_none, unseen)
    if path.suffix in _table_files.READERS and predictor.vocabulary:
        return _from_texts(path, predictor)
    if path.suffix not in (".npz", ".npy") or not path.is_file():
        raise ValueError(
            f"{path}: expected a .npz, a .npy, an image, a folder of images or of a dataset, or, "
            "where the run was trained on a table, a .csv or .parquet"
        )
    try:
        content = np.load(path)
        arrays = {"inputs": content} if path.suffix == ".npy" else dict(content)
    except (ValueError, OSError, EOFError, BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: not a file that numpy wrote ({error})") from None
    return _from_arrays(path, arrays, predictor)


def _from_dataset(path: Path, predictor: Predictor) -> NewSamples:
    dataset = storage.open_dataset(path)
    if dataset.info["columns"] != predictor.columns:
        raise ValueError(f"{path}: its columns differ from those that the run was trained on")
    names = list(range(len(dataset.targets)))
    is_scored = (dataset.classes, dataset.task) == (predictor.classes, predictor.task)
    notes = () if is_scored else ("it has different targets: predictions are not scored",)
    inputs = dataset.inputs
    if dataset.vocabulary and dataset.vocabulary.words:
        inputs = dataset.vocabulary.texts(inputs)
    return NewSamples(names, inputs, dataset.targets if is_scored else None, notes)


def _from_arrays(path: Path, arrays: dict[str, np.ndarray], predictor: Predictor) -> NewSamples:
    unused = npz.unused(path, arrays)
    notes = (f"not used: the arrays {', '.join(unused)}",) if unused else ()
    if predictor.vocabulary and predictor.vocabulary.words:
        raise ValueError(f"{path}: the run was trained on texts; expected a .csv or .parquet")
    inputs = arrays.get("inputs", arrays.get("images"))
    if inputs is None:
        raise ValueError(
            f"{path}: has no array inputs or images; found {', '.join(arrays) or 'none'}"
        )
    if predictor.dtype == "uint8" and inputs.ndim == 3:
        inputs = inputs[:, None]
    if inputs.ndim != len(predictor.shape) + 1 or 0 in inputs.shape:
        raise ValueError(
            f"{path}: expected (N, {', '.join(map(str, predictor.shape))}), none of them 0; found "
            f"{inputs.shape}"
        )
    if predictor.dtype == "float32" and inputs.dtype.kind in "fiub":
        with np.errstate(over="ignore"):
            inputs = inputs.astype(np.float32)
        if not np.isfinite(inputs).all():
            place = np.argwhere(~np.isfinite(inputs))[0].tolist()
            raise ValueError(f"{path}: the value at {place} is not a finite float32 number")
    if predictor.vocabulary:
        inputs = _of_tokens(path, inputs, predictor.vocabulary.size)
    count, classes = len(inputs), predictor.classes
    true = arrays.get(predictor.task.array)
    expected = (count, *predictor.task.target_shape(inputs.shape[1:]))
    if true is not None and true.shape != expected:
        raise ValueError(f"{path}: expected answers of the shape {expected}; found {true.shape}")
    if true is not None and classes is None and true.dtype.kind not in "fiub":
        raise ValueError(f"{path}: targets must be numbers; found {true.dtype}")
    if true is not None and classes is not None:
        is_class = true.dtype.kind in "iu" and 0 <= true.min() <= true.max() < len(classes)
        if not is_class:
            raise ValueError(
                f"{path}: labels must be ({count},) integers from 0 to {len(classes) - 1}; "
                f"found {true.dtype}, {true.shape}"
            )
    if true is not None and classes is None and not np.isfinite(true).all():
        true, notes = None, (*notes, "the targets have gaps: predictions are not scored")
    if true is not None and not predictor.task.is_scored(true):
        true, notes = None, (*notes, _not_scored(predictor.task))
    return NewSamples(list(range(count)), inputs, true, notes)


def _not_scored(task: Task) -> str:
    return f"the {task.array} {task.unfit}: predictions are not scored"


def _of_tokens(path: Path, inputs: np.ndarray, size: int) -> np.ndarray:
    """Return the numbers of tokens as int32."""
    if inputs.dtype.kind not in "iu" or inputs.min() < 0 or inputs.max() >= size:
        raise ValueError(f"{path}: expected token numbers, integers from 0 to {size - 1}")
    return inputs.astype(np.int32)


def _from_texts(path: Path, predictor: Predictor) -> NewSamples:
    """Read the run's column of texts from a table, and its target if there is such a column."""
    options = predictor.run.dataset.options
    targets = _names_of_targets(predictor)
    texts: Any = set() if predictor.classes is None else {*targets}
    header = options.get("header")
    frame = _table_files.read(path, texts, verbatim=[options["text"]], header=header)
    if options["text"] not in frame or frame.empty or _table_files.has_names(frame):
        found = ", ".join(map(str, frame.columns))
        raise ValueError(f"{path}: has no texts in a column {options['text']}; found {found}")
    table.refuse_missing(path, frame[[options["text"]]], "a text can be empty, but not missing")
    texts = np.array(text.of_column(path, frame[options["text"]]), dtype=object)
    true, notes = _true(frame, predictor)
    return NewSamples(list(range(len(texts))), texts, true, tuple(notes))


def _names_of_targets(predictor: Predictor) -> list[str | None]:
    target = predictor.run.dataset.options.get("target")
    return target if isinstance(target, list) else [target]


def _true(frame: pd.DataFrame, predictor: Predictor) -> tuple[np.ndarray | None, list[str]]:
    """Return (the true answers in a table or None, sentences on why they are not used)."""
    classes = predictor.classes
    columns: list[Any] = []
    notes: list[str] = []
    names = _names_of_targets(predictor)
    if not set(names) <= set(frame):
        return None, []
    for name in names:
        values, problem = (
            _numbers(frame[name]) if classes is None else _classes(frame[name], classes)
        )
        columns.append(values)
        if problem:
            notes.append(f"the column {name} {problem}: predictions are not scored")
    if any(values is None for values in columns):
        return None, notes
    is_several = isinstance(predictor.run.dataset.options.get("target"), list)
    true = np.stack(columns, axis=1) if is_several else columns[0]
    return (
        (true, notes)
        if predictor.task.is_scored(true)
        else (None, [*notes, _not_scored(predictor.task)])
    )


def _from_table(
    path: Path, predictor: Predictor, unknown_as_none: bool, unseen: Collection[int]
) -> NewSamples:
    """Read the features of the run from a table, and its target if there is such a column."""
    options = predictor.run.dataset.options
    target = options.get("target")
    # Categories are read as texts, as in training: in another table all may look like numbers.
    texts = {column["name"] for column in predictor.columns if column["category"] is not None}
    truth_values = {
        column["name"] for column in predictor.columns if column["category"] in ("False", "True")
    }
    texts = texts - truth_values | ({target} if predictor.classes is not None else set())
    reading = {key: options[key] for key in ("missing_values", "header") if key in options}
    frame = _table_files.read(path, texts, **reading)
    if frame.empty:
        raise ValueError(f"{path}: has no rows")
    inputs = table.encoded(path, frame, predictor.columns, unknown_as_none, unseen)
    if options.get("missing", "error") == "error":
        names = {column["name"] for column in predictor.columns}
        table.refuse_missing(
            path, frame[sorted(names)], "none was missing when the run was trained"
        )
    notes: Sequence[str]
    has_names = path.suffix == ".csv" and _table_files.has_names(frame)
    true, notes = _true(frame, predictor)
    notes = (*[_table_notes.NAMED] * has_names, *notes)
    return NewSamples(list(range(len(inputs))), inputs, true, notes)


def _numbers(values: pd.Series) -> tuple[np.ndarray | None, str | None]:
    """Return (the true numbers or None, the problem or None)."""
    try:
        numbers = table.numbers("", values)
    except ValueError:
        return None, "holds values that are not numbers"
    return (None, "has gaps") if np.isnan(numbers).any() else (numbers, None)


def _classes(values: pd.Series, classes: list[str]) -> tuple[np.ndarray | None, str | None]:
    """Return (the class number of each row or None, the problem or None).

    A class is written as in training; if all classes are numbers, 5.0 equals 5.
    """
    if values.isna().any():
        return None, "has gaps"
    texts = values.astype(str)
    if set(classes) == {"False", "True"}:
        texts = texts.replace({"0": "False", "0.0": "False", "1": "True", "1.0": "True"})
    places = texts.map({name: position for position, name in enumerate(classes)})
    number_of = {_number_of_class(name): position for position, name in enumerate(classes)}
    if None not in number_of and len(number_of) == len(classes):
        places = places.fillna(pd.to_numeric(texts, errors="coerce").map(number_of))
    unknown = texts[places.isna()]
    if len(unknown):
        shown = ", ".join(map(repr, sorted(set(unknown))[:SHOWN]))
        return None, f"holds {shown} in {len(unknown)} rows, which the run does not know"
    return places.to_numpy(np.int64), None


def _number_of_class(name: str) -> float | None:
    """Return the number that a class's name stands for; None: it is a text, such as the code 01."""
    try:
        return None if re.match("-?0[0-9]", name) else float(name)
    except ValueError:
        return None


def _from_files(folder: Path, shape: tuple[int, ...], classes: list[str] | None) -> NewSamples:
    """Read an image, or a folder of them, with classes if all are in folders of classes."""
    files = image_folder.images_below(folder) if folder.is_dir() else [folder]
    if not files:
        raise ValueError(f"{folder}: contains no images")
    if len(shape) != 3 or shape[0] != 3 or shape[1] != shape[2]:
        raise ValueError(f"{folder}: the run was trained on {shape}, not on image files")
    names = [file.relative_to(folder) if folder.is_dir() else Path(file.name) for file in files]
    images = np.stack([image_folder.read_image(file, shape[1]) for file in files])
    notes: Sequence[str]
    parent_names = [name.parts[0] for name in names if len(name.parts) > 1]
    unknown, true, notes = sorted(set(parent_names) - set(classes or ())), None, ()
    if len(parent_names) == len(names) and not unknown:
        assert classes is not None
        true = np.array([classes.index(name) for name in parent_names])
    elif classes and set(parent_names) & set(classes):
        where = f"in {unknown[0]}, which is not a class" if unknown else "in no class folder"
        notes = (f"some images are {where} of the run: predictions are not scored",)
    return NewSamples(list(map(str, names)), images, true, notes)
