"""Folds and splits: arrays with a number per sample; no data are copied to make one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.data import labels
from allcores_study.records import fingerprint
from allcores_study.records.identity import Record

if TYPE_CHECKING:
    from pathlib import Path

    from allcores_study.config.run import Run
    from allcores_study.data.storage import Dataset

# Instead of a fold: in no part; the first part in time, which is only trained on.
NOWHERE, FIRST = -1, -2


@dataclass(frozen=True)
class Assignable:
    """The arrays of a dataset's training part that folds are assigned by.

    Attributes:
        targets: (N,) int64 of classes, or (N, T) int8 of labels, by which folds are stratified, or
            float64 of numbers.
        groups: (N,) int64; samples of one group are held out together; None: no groups.
        times: (N,) int64; folds follow each other in time; None: samples have no order.
    """

    targets: np.ndarray
    groups: np.ndarray | None = None
    times: np.ndarray | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> Assignable:
        """The Assignable of an opened storage.Dataset."""
        return cls(dataset.targets[: dataset.info["train"]], dataset.groups, dataset.times)

    @property
    def arrays(self) -> list[np.ndarray]:
        return [array for array in (self.targets, self.groups, self.times) if array is not None]

    def part(self, is_chosen: np.ndarray) -> Assignable:
        """The Assignable of some samples.

        Args:
            is_chosen: (N,) bool.
        """
        arrays = (self.targets, self.groups, self.times)
        return Assignable(*(array if array is None else array[is_chosen] for array in arrays))  # type: ignore[arg-type]

    def folds(self, count: int, seed: int) -> np.ndarray:
        """The fold in which each sample is held out: (N,) int64, seeded.

        Of labels it spreads each evenly (labels.py), unless there are groups; else it uses
        scikit-learn's StratifiedKFold or StratifiedGroupKFold for classes, KFold or
        GroupKFold for numbers, and where stratifying would leave a fold without a group. Folds in
        time are as of TimeSeriesSplit: the earliest part is FIRST, and samples of one time are in
        one part.
        """
        from sklearn import model_selection

        if self.times is not None:
            return self._parts_of_time(count)
        if self._has_labels and self.groups is None:
            fold_of = labels.spread(self.targets, [1 / count] * count, seed)
            return self._checked(fold_of, count)
        is_class = self.targets.dtype.kind == "i" and not self._has_labels
        make = {
            (True, False): model_selection.StratifiedKFold,
            (True, True): model_selection.StratifiedGroupKFold,
            (False, False): model_selection.KFold,
            (False, True): model_selection.GroupKFold,
        }[is_class, self.groups is not None]
        splitter = make(count, shuffle=True, random_state=seed)
        fold_of = self._fold_of(splitter)
        if is_class and self.groups is not None and len(np.unique(fold_of)) < count:
            # Few groups: what counts is that each fold has one.
            by_group = model_selection.GroupKFold(count, shuffle=True, random_state=seed)
            fold_of = self._fold_of(by_group)
        return self._checked(fold_of, count)

    def _fold_of(self, splitter: Any) -> np.ndarray:
        """The fold in which a splitter of scikit-learn's holds out each sample."""
        fold_of = np.empty(len(self.targets), np.int64)
        parts = splitter.split(np.zeros(len(self.targets)), self.targets, self.groups)
        for fold, (_, held_out) in enumerate(parts):
            fold_of[held_out] = fold
        return fold_of

    @property
    def _has_labels(self) -> bool:
        return self.targets.ndim == 2 and self.targets.dtype.kind == "i"

    @staticmethod
    def _checked(fold_of: np.ndarray, count: int) -> np.ndarray:
        if len(np.unique(fold_of)) < count:
            raise ValueError(f"{count} folds leave one of them empty: there are too few groups")
        return fold_of

    def draw(self, part: float, seed: int) -> np.ndarray:
        """Draw a part of the samples: (N,) bool.

        It uses scikit-learn's StratifiedShuffleSplit for classes, ShuffleSplit for numbers or
        GroupShuffleSplit; in time it takes the latest samples.

        Raises:
            ValueError: there are too few samples, groups or times.
        """
        from sklearn import model_selection

        if self.times is not None:
            size = max(1, round(part * len(self.times)))
            is_held_out = self.times >= np.sort(self.times)[-size]
            if is_held_out.all():
                raise ValueError("there are too few times")
            return is_held_out
        if self._has_labels and self.groups is None:
            part = max(part, 1 / len(self.targets))  # one sample at least
            return labels.spread(self.targets, [part, 1 - part], seed) == 0
        make = model_selection.ShuffleSplit
        if self.groups is not None:
            make = model_selection.GroupShuffleSplit
        elif self.targets.dtype.kind == "i" and not self._has_labels:
            make = model_selection.StratifiedShuffleSplit
        splitter = make(1, test_size=part, random_state=seed)
        ((_, chosen),) = splitter.split(np.zeros(len(self.targets)), self.targets, self.groups)
        return np.isin(np.arange(len(self.targets)), chosen)

    def _parts_of_time(self, count: int) -> np.ndarray:
        """FIRST, then the folds in order of time, as equal in size as possible and not empty."""
        assert self.times is not None
        times, of_sample, sizes = np.unique(self.times, return_inverse=True, return_counts=True)
        if len(times) < count + 1:
            raise ValueError(
                f"{count} folds, one after the other, need more than {len(times)} times"
            )
        size = max(1, len(self.times) // (count + 1))
        first = len(self.times) - count * size
        earlier = np.cumsum(sizes) - sizes
        parts = np.where(earlier < first, 0, 1 + (earlier - first) // size)
        # A time with many samples skips no part, and each of the following parts has a time.
        for i in range(1, len(times)):
            fewest = count + 1 + i - len(times)
            parts[i] = max(fewest, min(parts[i], parts[i - 1] + 1))
        return np.where(parts == 0, FIRST, parts - 1)[of_sample]


def before(fold_of: np.ndarray, fold: int, ordered: bool) -> np.ndarray:
    """Which samples may be trained on when a fold is held out: (N,) bool.

    Args:
        fold_of: the fold of each sample, (N,) int64, or NOWHERE or FIRST.
        ordered: whether folds follow each other in time.
    """
    return (fold_of != NOWHERE) & (fold_of < fold if ordered else fold_of != fold)


def of_run(run: Run, assignable: Assignable, file: str | Path | None = None) -> np.ndarray | None:
    """The fold of each training sample in a Run, (N,) int64; None: it has no folds.

    Args:
        assignable: Assignable, of the dataset.
        file: where write() has saved them; None: assign them now.

    Raises:
        ValueError: see read().
    """
    if run.folds is None and not run.inner_folds:
        return None
    if file is None:
        fold_of = assign(assignable, run.folds or 0, run.inner_folds, run.seed)
    else:
        fold_of = read(file, assignable, run.folds or 0, run.inner_folds or 0, run.seed)
    return fold_of[run.fold or 0] if run.inner_folds else fold_of


def assign(assignable: Assignable, folds: int, inner: int | None, seed: int) -> np.ndarray:
    """The fold of each sample, or, if `inner` is not 0, assign_inner_folds()."""
    if inner:
        return assign_inner_folds(assignable, folds, inner, seed)
    return assignable.folds(folds, seed)


def write(path: str | Path, assignable: Assignable, folds: int, inner: int, seed: int) -> None:
    """Save what assign() returns as a Record."""
    fold_of = assign(assignable, folds, inner, seed)
    made_of = _made_of(assignable, folds, inner, seed)
    Record(made_of, content={"fold_of": fold_of.tolist()}).write(path)


def read(path: str | Path, assignable: Assignable, folds: int, inner: int, seed: int) -> np.ndarray:
    """What write() has saved with the same arguments, int64.

    Raises:
        ValueError: the file was changed since, or is of other labels, numbers or seeds.
        OSError: it cannot be read.
    """
    record = Record.read(path)
    if not record.is_up_to_date(_made_of(assignable, folds, inner, seed)):
        raise ValueError(
            f"{path} is not what was assigned, or the labels have changed. Delete it to assign the "
            "samples to folds again"
        )
    return np.array(record.content["fold_of"], np.int64)


def _made_of(assignable: Assignable, folds: int, inner: int, seed: int) -> str:
    arrays = [hashlib.sha256(array.tobytes()).hexdigest() for array in assignable.arrays]
    numbers = {"folds": folds, "inner": inner, "seed": seed}
    return json.dumps(numbers | {"code": fingerprint.of_folds(), "arrays": arrays})


def assign_inner_folds(assignable: Assignable, folds: int, inner: int, seed: int) -> np.ndarray:
    """For each of the folds, the inner fold of each sample of its training part, else NOWHERE.

    Args:
        folds: their number; 0: the dataset's own test set is held out.
        inner: number of folds that a training part is cut into.

    Returns:
        (max(folds, 1), N) int64, seeded.
    """
    count = len(assignable.targets)
    ordered = assignable.times is not None
    fold_of = assignable.folds(folds, seed) if folds else np.full(count, FIRST)
    inner_of = np.full((max(folds, 1), count), NOWHERE, np.int64)
    for fold in range(len(inner_of)):
        is_trained = before(fold_of, fold, ordered)
        inner_of[fold, is_trained] = assignable.part(is_trained).folds(inner, seed)
    return inner_of


def hold_back(
    assignable: Assignable, samples: np.ndarray, part: float | None, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Hold back a part of the training samples to validate the weights during training.

    It is stratified, or has whole groups, or is the latest in time.

    Args:
        samples: positions of the training samples, (n,) int64, ascending.
        part: the share of samples, or of their groups, in 0..1/2; None: none.

    Returns:
        (the samples to train on, the samples held back), int64, ascending.

    Raises:
        ValueError: there are too few samples or groups.
    """
    if part is None:
        return samples, samples[:0]
    is_chosen = np.isin(np.arange(len(assignable.targets)), samples)
    try:
        is_held_back = assignable.part(is_chosen).draw(part, seed)
    except ValueError as error:
        raise ValueError(f"no validation part of {part:g} can be held back: {error}") from None
    return samples[~is_held_back], samples[is_held_back]


def split(
    info: dict[str, Any],
    fold_of: np.ndarray | None,
    fold: int | None,
    train_size: int | None,
    seed: int,
    ordered: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Which samples a run trains on and which it is scored on.

    Args:
        info: the content of dataset.json, see storage.Dataset.
        fold_of: the fold of each training sample, (N,) int64, or NOWHERE or FIRST; None: the
            dataset's own test set is held out.
        fold: the fold to hold out.
        train_size: use only so many training samples, the first ones of a seeded order, so that
            smaller sets are nested in larger ones. None: all.
        ordered: whether folds follow each other in time.

    Returns:
        (train, held_out), positions in the dataset, int64, ascending.

    Raises:
        ValueError: one of them would be empty, or there are fewer training samples than asked for.
    """
    samples = np.arange(info["train"])
    if fold_of is None:
        train, held_out = samples, np.arange(info["train"], info["shape"][0])
    else:
        train, held_out = samples[before(fold_of, fold, ordered)], samples[fold_of == fold]  # type: ignore[arg-type]
    if train_size is not None:
        shuffled = np.random.default_rng([seed, info["train"]]).permutation(samples)
        if train_size > len(train):
            raise ValueError(
                f"{train_size} samples to train on are asked for; {len(train)} are left"
            )
        train = np.sort(shuffled[np.isin(shuffled, train)][:train_size])
    if not len(train) or not len(held_out):
        raise ValueError(f"{len(train)} samples are left to train on, {len(held_out)} are held out")
    return train, held_out
