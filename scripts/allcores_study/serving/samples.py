"""New samples for a trained network: a DataFrame, an array, or files of them."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from allcores_study.datasets import _table_files, _table_notes, image_folder, table, text

if TYPE_CHECKING:
    from allcores_study.serving.predictor import Predictor


@dataclass(frozen=True)
class NewSamples:
    """Samples to predict.

    Attributes:
        names: of the samples, (n,): their files, or numbers from 0.
        inputs: (n, ...) uint8 images, float32, or float64 for a table; int32 numbers of tokens;
            (n,) texts; ImageFiles, a slice of which is such an array.
        notes: sentences on what may be unintended.
    """

    names: Sequence[str] | Sequence[int]
    inputs: Any
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ImageFiles:
    """Images that are read when they are needed, because photographs would fill the memory."""

    files: list[Path]
    size: int

    def __getitem__(self, part: slice) -> np.ndarray:
        """Return (n, 3, size, size) uint8."""
        return np.stack([image_folder.read_image(file, self.size) for file in self.files[part]])


def of(
    data: Any,
    predictor: Predictor,
    unknown_as_none: bool = False,
    unseen: Collection[int] = (),
) -> NewSamples:
    """Return the NewSamples in a DataFrame or an array, or at a path.

    A path leads to a .npz with `images` or `inputs`, a .npy, a .csv or .parquet, an image, or a
    folder of images.

    Args:
        predictor: Predictor of a run that was trained on such samples.
        unknown_as_none, unseen: see table.encoded().

    Raises:
        ValueError: there are no such samples, or they do not fit the run.
    """
    if isinstance(data, str | Path):
        return _at(Path(data), predictor, unknown_as_none, unseen)
    if isinstance(data, pd.DataFrame) and not (predictor.columns or predictor.vocabulary):
        return of(data.to_numpy(), predictor)
    if isinstance(data, pd.DataFrame):
        if data.columns.nlevels > 1:
            raise ValueError("data: its columns have several levels; name each by one text")
        used = {column["name"] for column in predictor.columns or ()}
        options = predictor.run.dataset.options
        used |= {options.get("text")}
        frame = data[[name for name in data if str(name) in used]]
        for name in frame.columns[frame.columns.map(str).duplicated()]:
            raise ValueError(f"data: has the column {name} twice")
        reading = options.get("missing_values", ()), [str(options.get("text"))]
        read = _table_files.Table(_table_files.with_texts(_table_files.of_frame(frame, *reading)))
        return _of_table("data", read, predictor, unknown_as_none, unseen)
    array = np.asarray(data.detach() if hasattr(data, "detach") else data)
    if predictor.columns and array.ndim == 2 and not isinstance(data, pd.Series):
        names = list(dict.fromkeys(column["name"] for column in predictor.columns))
        if array.shape[1] != len(names):
            raise ValueError(
                f"data: found {array.shape[1]} columns; the model takes {len(names)}: "
                f"{', '.join(names)}"
            )
        frame = pd.DataFrame(array, columns=names).infer_objects()
        return of(frame, predictor, unknown_as_none, unseen)
    if array.dtype.kind not in "biuf" or isinstance(data, pd.Series):
        kind = type(data).__name__
        raise ValueError(f"data: found a {kind}; expected a DataFrame, numbers or a path")
    return _of_array("data", array, predictor)


def _at(
    path: Path, predictor: Predictor, unknown_as_none: bool, unseen: Collection[int]
) -> NewSamples:
    if not path.exists():
        raise ValueError(f"{path}: no such file or folder")
    if path.is_dir() or path.suffix.lower() in image_folder.SUFFIXES:
        return _of_images(path, predictor.shape)
    if path.suffix.lower() in _table_files.READERS and (predictor.columns or predictor.vocabulary):
        read = _read_table(path, predictor)
        return _of_table(path, read, predictor, unknown_as_none, unseen)
    if path.suffix not in (".npz", ".npy") or not path.is_file():
        raise ValueError(
            f"{path}: expected a .npz, a .npy, an image, a folder of images, or, where the run was "
            "trained on a table, a .csv or .parquet"
        )
    try:
        content = np.load(path)
        arrays = {"inputs": content} if path.suffix == ".npy" else dict(content)
    except (ValueError, OSError, EOFError, BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: not a file that numpy wrote ({error})") from None
    used = next((name for name in ("inputs", "images") if name in arrays), None)
    if used is None:
        raise ValueError(
            f"{path}: has no array inputs or images; found {', '.join(arrays) or 'none'}"
        )
    others = ", ".join(name for name in arrays if name != used)
    notes = (f"predicted are the {used}; not used: {others}",) if others else ()
    return _of_array(path, arrays[used], predictor, notes)


def _read_table(path: Path, predictor: Predictor) -> _table_files.Table:
    """Read a table as the run's was read: categories are texts, also if all look like numbers."""
    options = predictor.run.dataset.options
    columns = predictor.columns or ()
    truth_values = {one["name"] for one in columns if one["category"] in ("False", "True")}
    texts = {one["name"] for one in columns if one["category"] is not None} - truth_values
    reading = {key: options[key] for key in ("missing_values", "header") if key in options}
    verbatim = [options["text"]] if "text" in options else []
    return _table_files.read(path, texts, verbatim, **reading)


def _of_table(
    place: str | Path,
    read: _table_files.Table,
    predictor: Predictor,
    unknown_as_none: bool,
    unseen: Collection[int],
) -> NewSamples:
    """Return the features or the texts that the run was trained on."""
    options, columns, frame = predictor.run.dataset.options, predictor.columns, read.frame
    if frame.empty:
        raise ValueError(f"{place}: has no rows")
    if columns is None:
        if options.get("text") not in frame or read.is_longer:
            found = ", ".join(map(str, frame.columns))
            raise ValueError(
                f"{place}: has no texts in a column {options.get('text')}; found {found}"
            )
        texts = frame[options["text"]]
        table.refuse_missing(place, texts.to_frame(), "a text can be empty, but not missing")
        inputs = np.array(text.of_column(place, texts), dtype=object)
        return NewSamples(range(len(frame)), inputs)
    inputs = table.encoded(place, frame, columns, unknown_as_none, unseen)
    if options.get("missing", "error") == "error":
        names = sorted({column["name"] for column in columns})
        table.refuse_missing(place, frame[names], "none was missing when the run was trained")
    notes = (_table_notes.NAMED,) if read.has_row_names else ()
    return NewSamples(range(len(frame)), inputs, notes)


def _of_array(
    place: str | Path, inputs: np.ndarray, predictor: Predictor, notes: Sequence[str] = ()
) -> NewSamples:
    if predictor.vocabulary and predictor.vocabulary.words:
        raise ValueError(f"{place}: the run was trained on texts; expected a .csv or .parquet")
    if predictor.dtype == "uint8" and inputs.ndim == 3:
        inputs = inputs[:, None]
    if inputs.ndim != len(predictor.shape) + 1 or 0 in inputs.shape:
        raise ValueError(
            f"{place}: expected (N, {', '.join(map(str, predictor.shape))}), none of them 0; found "
            f"{inputs.shape}"
        )
    if predictor.dtype.startswith("float") and inputs.dtype.kind in "fiub":
        with np.errstate(over="ignore"):
            inputs = inputs.astype(predictor.dtype)
        if not np.isfinite(inputs).all():
            at = np.argwhere(~np.isfinite(inputs))[0].tolist()
            raise ValueError(f"{place}: the value at {at} is not a finite {predictor.dtype} number")
    if predictor.vocabulary:
        size = predictor.vocabulary.size
        if inputs.dtype.kind not in "iu" or inputs.min() < 0 or inputs.max() >= size:
            raise ValueError(f"{place}: expected token numbers, integers from 0 to {size - 1}")
        inputs = inputs.astype(np.int32)
    return NewSamples(range(len(inputs)), inputs, notes)


def _of_images(place: Path, shape: tuple[int, ...]) -> NewSamples:
    """Return an image, or all in a folder."""
    files = image_folder.images_below(place) if place.is_dir() else [place]
    if not files:
        raise ValueError(f"{place}: contains no images")
    if len(shape) != 3 or shape[0] != 3 or shape[1] != shape[2]:
        raise ValueError(f"{place}: the run was trained on {shape}, not on image files")
    names = [str(file.relative_to(place)) if place.is_dir() else file.name for file in files]
    return NewSamples(names, ImageFiles(files, shape[1]))
