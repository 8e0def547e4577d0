"""Your own arrays: a file that numpy.savez wrote, or a folder of files that numpy.save wrote.

The inputs are `images`, uint8, (N, H, W) or (N, C, H, W), or else `inputs` of any real type and
shape: (N, F) rows of a table, (N, C, L) signals, (N, C, H, W) images. The answers depend on the
task:

* classification: `labels`, (N,) integers from 0 without a gap in the training samples;
* regression: `targets`, (N,) numbers, or (N, T) for several;
* multilabel: `labels`, (N, T) zeros and ones;
* segmentation: `masks`, (N, H, W) class numbers.

Your own test set has the same names with the prefix `test_`. With `groups`, (N,) integers, one per
training sample, samples of one group are held out together; with `times`, (N,) numbers or dates,
held-out samples come after those that are trained on; with `folds`, (N,) integers, a sample is held
out in that fold, from 0, or in none, -1. `classes` are the classes in the order of their numbers,
(classes,) texts, numbers or truth values. In a folder every array is a file, such as inputs.npy,
which is read in parts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from allcores_study.data import tokens
from allcores_study.data.storage import Samples
from allcores_study.datasets._arrays import read_arrays
from allcores_study.tasks import base as tasks
from allcores_study.tasks.base import Task, described
from allcores_study.tasks.segmentation import Segmentation

ALLOWED = {
    "task": ("classification", "regression", "multilabel", "segmentation"),
    "inputs": ("numbers", "tokens"),
    "vocabulary": 1,
}
PARTS = ("", "test_")
# Each part needs one of INPUTS; the training samples may have OF_TRAINING.
INPUTS, OF_TRAINING = ("inputs", "images"), ("groups", "times", "folds")
CLASSES = "classes"
# The array that holds the answers of each task.
ANSWER = {
    "classification": "labels",
    "regression": "targets",
    "multilabel": "labels",
    "segmentation": "masks",
}
ANSWERS = tuple(dict.fromkeys(ANSWER.values()))
# How many numbers are read at once.
CHUNK = 1 << 24
# A last axis up to this size may be the channels of (N, H, W, C), if the second axis is larger.
MOST_COLOURS = 4
MOST_TOKENS = np.iinfo(np.int32).max  # as they are stored


def load(
    folder: Path | None,
    *,
    path: str,
    task: str = "classification",
    inputs: str = "numbers",
    vocabulary: int | None = None,
) -> Samples:
    """The arrays in the file or folder at path.

    Args:
        inputs: "tokens": the inputs are (N, L) integers from 0, such as the numbers of words, and
            stay integers; a sequence that is shorter than the longest ends with zeros.
        vocabulary: number of different tokens; None: as many as the largest number needs.

    Raises:
        ValueError: the file lacks an array, or one has another shape, type or values.
    """
    file = _File(path, task, inputs == "tokens")
    return Samples(
        shape=(sum(map(len, file.targets)), *file.shapes[0][1:]),
        chunks=(chunk for part in range(len(file.shapes)) for chunk in file.inputs(part)),
        targets=np.concatenate(file.targets),
        task=file.task,
        names=file.task.usual_names if file.classes is None else list(map(str, file.classes)),
        classes=file.classes,
        train=len(file.targets[0]),
        groups=file.groups,
        times=file.times,
        folds=file.folds,
        dtype=file.dtype,
        vocabulary=_vocabulary(file, vocabulary) if file.are_tokens else None,
        notes=list(_notes(file)),
    )


def _vocabulary(file: _File, size: int | None) -> tokens.Vocabulary:
    """Return the Vocabulary of tokens.

    Raises:
        ValueError: a number is negative, or too large for a vocabulary of that size.
    """
    parts = range(len(file.shapes))
    ends = [[(chunk.min(), chunk.max()) for chunk in file.inputs(part)] for part in parts]
    size = size or int(max(most for _, most in ends[0])) + 1  # of the training part
    least = min(low for of_part in ends for low, _ in of_part)
    most = max(high for of_part in ends for _, high in of_part)
    file.refuse_tokens(int(least), int(most), size)
    return tokens.Vocabulary(tokens.OWN, size)


def _notes(file: _File) -> Iterator[str]:
    others = [name for name in ANSWERS if name in file.names and name != file.answer]
    if unused_names := [*file.unused, *others]:
        yield f"not used: the arrays {', '.join(unused_names)}"
    if isinstance(file.task, Segmentation):
        yield from file.task.notes(file.targets[0], file.task.usual_names)
    shape = file.shapes[0]
    if file.kind == "inputs" and len(shape) == 3 and shape[1] == shape[2] > MOST_COLOURS:
        yield (
            f"the inputs {shape} are signals of {shape[1]} channels; if they are images, write "
            "them as (N, 1, H, W): `inputs[:, None]`"
        )
    if file.kind == "inputs" and len(shape) == 4 and shape[3] <= MOST_COLOURS < shape[1]:
        yield (
            f"the inputs {shape} are images of {shape[1]} channels; if the channels are last, "
            "write `inputs.transpose(0, 3, 1, 2)`"
        )
    if file.dtype == np.float32 and file.inputs_dtype.kind in "iu":
        yield (
            f"the inputs are whole numbers ({file.inputs_dtype}) and are scaled as measurements "
            "are; if they stand for words or categories, set `inputs: tokens`"
        )


def unused(path: str | Path, names: Iterable[str]) -> list[str]:
    """Return the names of arrays that are not used.

    Raises:
        ValueError: one is nearly the name of a used array, or there are both names of inputs.
    """
    known = [f"{part}{name}" for part in PARTS for name in (*INPUTS, *ANSWERS)]
    known += [*OF_TRAINING, CLASSES]
    others = [name for name in names if name not in known]
    for name in others:
        if close := difflib.get_close_matches(name, known, n=1, cutoff=0.8):
            raise ValueError(f"{path}: unknown array {name}; did you mean {close[0]}?")
    if set(INPUTS) <= set(names):
        raise ValueError(f"{path}: has {' and '.join(INPUTS)}; expected one of them")
    return others


class _File:
    """The arrays of a file or folder, except the inputs, which are not read yet.

    Attributes:
        shapes: shape of the inputs of each part, (N, ...).
        task: its Task.
        answer: name of the array with the answers.
        targets: targets of each part.
        groups, times, folds: of the training samples, or None.
        classes: a pandas.Index, or None.
        unused: names of unused arrays.
        are_tokens: whether the inputs are tokens.
        dtype: dtype of the inputs in the prepared dataset.
        inputs_dtype: dtype of the inputs in the file.
    """

    def __init__(self, path: str, task: str, are_tokens: bool) -> None:
        if not Path(path).exists():
            raise ValueError(f"{path}: no such file or folder")
        self.path, self.answer = path, ANSWER[task]
        names = self.names = read_arrays(path)
        self.unused = unused(path, names)
        self.targets: list[np.ndarray] = []
        self.kind = "inputs" if "inputs" in names else "images"
        parts = PARTS if any(name.startswith(PARTS[1]) for name in names) else PARTS[:1]
        for name in (f"{prefix}{kind}" for prefix in parts for kind in (self.kind, self.answer)):
            if name not in names:
                name += " or inputs" if name == "images" else ""
                raise ValueError(f"{path}: has no array {name}; found {', '.join(names) or 'none'}")
        self.dtype: type[np.generic] = np.uint8 if self.kind == "images" else np.float32
        self.inputs_dtype, shape = read_arrays(path, self.kind, header_only=True)
        self.are_tokens = are_tokens
        if are_tokens:
            if self.kind == "images" or self.inputs_dtype.kind not in "iu" or len(shape) != 2:
                raise ValueError(
                    f"{path}: tokens must be inputs, (N, L) integers; found {self.kind}, "
                    f"{self.inputs_dtype}, {shape}"
                )
            self.dtype = np.int32
        self.shapes = [self._shape(f"{prefix}{self.kind}") for prefix in parts]
        if len({shape[1:] for shape in self.shapes}) > 1:
            raise ValueError(f"{path}: {self.kind} and test_{self.kind} differ in shape")
        answers = [read_arrays(path, f"{prefix}{self.answer}") for prefix in parts]
        for name, targets, shape in zip(parts, answers, self.shapes, strict=True):
            try:
                if not name:
                    self.task: Task = tasks.named(task, 1).of_targets(targets)
                elif targets.shape[1:] != answers[0].shape[1:]:
                    raise ValueError(f"found {described(targets)}, unlike {self.answer}")
                self.targets.append(self.task.checked(targets, are_all=not name))
            except ValueError as error:
                raise ValueError(f"{path}: {name}{self.answer}: {error}") from None
            are_pixels = self.task.target == "pixels"
            expected = (shape[0], *shape[2:]) if are_pixels else shape[:1]
            if expected != (targets.shape if are_pixels else targets.shape[:1]):
                raise ValueError(
                    f"{path}: {name}{self.answer} {targets.shape} do not fit {self.kind} {shape}; "
                    f"expected one for each {'pixel' if are_pixels else 'sample'}"
                )
        self.groups = self._of_samples("groups", "iu", "integers")
        self.times = self._of_samples("times", "iufM", "numbers or dates")
        self.folds = self._of_samples("folds", "iu", "integers")
        for name in ("groups", "folds"):
            if self.times is not None and name in names:
                raise ValueError(f"{path}: found {name} and times; expected one of them")
        if self.folds is not None and not 2 <= len(np.unique(self.folds[self.folds >= 0])) == (
            self.folds.max() + 1
        ):
            raise ValueError(f"{path}: folds must be numbers from 0 without a gap, at least two")
        self.classes = self._classes()

    def inputs(self, part: int) -> Iterator[np.ndarray]:
        """Yield the inputs of a part, converted to dtype, some samples at a time.

        Raises:
            ValueError: a value is missing or infinite.
        """
        name, shape = f"{PARTS[part]}{self.kind}", self.shapes[part]
        array = read_arrays(self.path, name).reshape(shape)
        count = max(1, CHUNK * shape[0] // array.size)
        for start in range(0, shape[0], count):
            chunk = array[start : start + count]
            if self.are_tokens:
                self.refuse_tokens(int(chunk.min()), int(chunk.max()), MOST_TOKENS)
            wide, chunk = chunk, chunk.astype(self.dtype)
            if wide.ndim == 2 and not np.can_cast(wide.dtype, chunk.dtype, "safe"):
                self._refuse_rounded(name, wide.astype(np.float64), chunk)
            if self.dtype == np.float32 and not np.isfinite(chunk).all():
                place = np.argwhere(~np.isfinite(chunk))[0]
                where = ", ".join(map(str, [start + place[0], *place[1:]]))
                raise ValueError(
                    f"{self.path}: {name}[{where}] is {chunk[tuple(place)]}; expected finite "
                    "numbers that float32 can hold"
                )
            yield chunk

    def _refuse_rounded(self, name: str, wide: np.ndarray, chunk: np.ndarray) -> None:
        """Raise a ValueError if float32 cannot tell the numbers of a column apart."""
        spread, step = wide.std(axis=0), np.spacing(np.abs(chunk).max(axis=0))
        # A spread that comes from rounding in float64 does not count.
        is_lost = (step > 0.01 * spread) & (spread > 1e-12 * np.abs(wide).max(axis=0))
        for column in np.flatnonzero(is_lost):
            least, most = wide[:, column].min(), wide[:, column].max()
            raise ValueError(
                f"{self.path}: {name}[:, {column}] are numbers from {least:.12g} to {most:.12g}, "
                "which float32 can hardly tell apart; subtract a common offset, or give a table"
            )

    def refuse_tokens(self, least: int, most: int, size: int) -> None:
        """Check the smallest and the largest token number against the size of a vocabulary."""
        if least < 0 or most >= size:
            raise ValueError(
                f"{self.path}: found tokens from {least} to {most}; expected numbers from 0 to "
                f"{size - 1}, as set by `vocabulary` or else by the training samples"
            )

    def _shape(self, name: str) -> tuple[int, ...]:
        dtype, shape = read_arrays(self.path, name, header_only=True)
        if self.kind == "inputs":
            if dtype.kind not in "fiub" or len(shape) < 2 or 0 in shape:
                raise ValueError(
                    f"{self.path}: {name} must be numbers of the shape (N, ...), and not empty; "
                    f"found {dtype}, {shape}"
                )
            return shape
        if dtype != np.uint8 or len(shape) not in (3, 4) or 0 in shape:
            raise ValueError(
                f"{self.path}: {name} must be uint8, (N, H, W) or (N, C, H, W), and not empty; "
                f"found {dtype}, {shape}. Save images of other numbers as `inputs` of the shape "
                "(N, C, H, W); `images[:, None]` turns (N, H, W) into that"
            )
        if len(shape) == 4 and shape[3] <= MOST_COLOURS < shape[1]:
            raise ValueError(
                f"{self.path}: {name} has the shape {shape}, with the channels last; expected "
                "(N, C, H, W): images.transpose(0, 3, 1, 2)"
            )
        return shape if len(shape) == 4 else (shape[0], 1, *shape[1:])

    def _classes(self) -> Any:
        if CLASSES not in self.names:
            return None
        import pandas as pd

        found, expected = read_arrays(self.path, CLASSES), self.task.outputs
        is_right = self.task.name == "classification" and found.shape == (expected,)
        if not is_right or found.dtype.kind not in "biufU" or len(np.unique(found)) < expected:
            raise ValueError(
                f"{self.path}: {CLASSES} must be {expected} different texts, numbers or truth "
                f"values, for labels from 0 to {expected - 1}; found {found.dtype}, {found.shape}"
            )
        return pd.Index(found)

    def _of_samples(self, name: str, kinds: str, expected: str) -> np.ndarray | None:
        """Return an array with a value per training sample, or None.

        Args:
            kinds: allowed values of numpy's dtype.kind.
            expected: the same in words.
        """
        if name not in self.names:
            return None
        values, count = read_arrays(self.path, name), len(self.targets[0])
        if values.shape != (count,) or values.dtype.kind not in kinds:
            raise ValueError(
                f"{self.path}: {name} must be ({count},) {expected}; "
                f"found {values.dtype}, {values.shape}"
            )
        if values.dtype.kind in "fM" and not np.isfinite(values).all():
            raise ValueError(f"{self.path}: {name} has no finite value for some samples")
        return values
