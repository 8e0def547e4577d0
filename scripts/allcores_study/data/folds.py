"""Folds and splits, as arrays of one number per sample; no data are copied."""

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
    from allcores_study.data.facts import Facts
    from allcores_study.data.storage import Dataset

# In place of a fold: NOWHERE is in no part; FIRST is only trained on, as the earliest part in time.
NOWHERE, FIRST = -1, -2


@dataclass(frozen=True)
class Assignable:
    """The arrays of a dataset's training part by which folds are assigned.

    Attributes:
        targets: (N,) int64 classes or (N, T) int8 labels, by which folds are stratified, or float64
            numbers.
        groups: (N,) int64; samples of one group are held out together; None: no groups.
        times: (N,) int64; folds follow each other in time; None: samples have no order.
        own: (N,) int64, the folds that the data bring, from 0 or FIRST; None: they bring none.
    """

    targets: np.ndarray
    groups: np.ndarray | None = None
    times: np.ndarray | None = None
    own: np.ndarray | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> Assignable:
        """Return the Assignable of an opened storage.Dataset."""
        targets = dataset.targets[: dataset.facts.train]
        own = dataset.folds
        own = None if own is None else np.where(own < 0, FIRST, own)
        return cls(targets, dataset.groups, dataset.times, own)

    @property
    def arrays(self) -> list[np.ndarray]:
        arrays = (self.targets, self.groups, self.times, self.own)
        return [array for array in arrays if array is not None]

    def part(self, is_chosen: np.ndarray) -> Assignable:
        """Return the Assignable of some samples, whose folds are not those that the data bring.

        Args:
            is_chosen: (N,) bool.
        """
        arrays = (self.targets, self.groups, self.times)
        return Assignable(*(array if array is None else array[is_chosen] for array in arrays))  # type: ignore[arg-type]

    def folds(self, count: int, seed: int) -> np.ndarray:
        """Return the fold in which each sample is held out: (N,) int64, seeded.

        They are those that the data bring, if they do; `count` is then known to be their number.
        Labels without groups are spread evenly (labels.py). Otherwise scikit-learn assigns the
        folds: StratifiedKFold or StratifiedGroupKFold for classes, KFold or GroupKFold for numbers.
        GroupKFold also takes over where stratifying would leave a fold without a group. Folds in
        time follow TimeSeriesSplit: the earliest part is FIRST, and samples of one time are in one
        part.
        """
        from sklearn import model_selection

        if self.own is not None:
            return self.own
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
            # Stratifying few groups can leave a fold without one, but each fold needs a group.
            by_group = model_selection.GroupKFold(count, shuffle=True, random_state=seed)
            fold_of = self._fold_of(by_group)
        return self._checked(fold_of, count)

    def _fold_of(self, splitter: Any) -> np.ndarray:
        """Return the fold in which a splitter of scikit-learn holds out each sample."""
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
            raise ValueError(f"too few groups for {count} folds: one of them would be empty")
        return fold_of

    def draw(self, part: float, seed: int) -> np.ndarray:
        """Draw a part of the samples: (N,) bool.

        In time, these are the latest samples. Otherwise scikit-learn draws them:
        StratifiedShuffleSplit for classes, ShuffleSplit for numbers, or GroupShuffleSplit.

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
        """Return FIRST and the folds in order of time, as equal in size as possible, none empty."""
        assert self.times is not None
        times, of_sample, sizes = np.unique(self.times, return_inverse=True, return_counts=True)
        if len(times) < count + 1:
            raise ValueError(
                f"{count} folds in order of time need more than {len(times)} different times"
            )
        size = max(1, len(self.times) // (count + 1))
        first = len(self.times) - count * size
        earlier = np.cumsum(sizes) - sizes
        parts = np.where(earlier < first, 0, 1 + (earlier - first) // size)
        # However many samples a time has, no part is skipped, and each later part gets a time.
        for i in range(1, len(times)):
            fewest = count + 1 + i - len(times)
            parts[i] = max(fewest, min(parts[i], parts[i - 1] + 1))
        return np.where(parts == 0, FIRST, parts - 1)[of_sample]


def before(fold_of: np.ndarray, fold: int, ordered: bool) -> np.ndarray:
    """Return which samples may be trained on when a fold is held out: (N,) bool.

    Args:
        fold_of: the fold of each sample, (N,) int64, or NOWHERE or FIRST.
        ordered: whether folds follow each other in time.
    """
    return (fold_of != NOWHERE) & (fold_of < fold if ordered else fold_of != fold)


def of_run(run: Run, assignable: Assignable, file: str | Path | None = None) -> np.ndarray | None:
    """Return the fold of each training sample in a Run, (N,) int64; None: it has no folds.

    Args:
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
    """Return the fold of each sample, or what assign_inner_folds() returns if `inner` is not 0."""
    if inner:
        return assign_inner_folds(assignable, folds, inner, seed)
    return assignable.folds(folds, seed)


def write(path: str | Path, assignable: Assignable, folds: int, inner: int, seed: int) -> None:
    """Save what assign() returns as a Record."""
    fold_of = assign(assignable, folds, inner, seed)
    made_of = _made_of(assignable, folds, inner, seed)
    Record(made_of, content={"fold_of": fold_of.tolist()}).write(path)


def read(path: str | Path, assignable: Assignable, folds: int, inner: int, seed: int) -> np.ndarray:
    """Return what write() has saved with the same arguments, int64.

    Raises:
        ValueError: the file has changed since, or is for other labels, numbers or seeds.
        OSError: it cannot be read.
    """
    record = Record.read(path)
    if not record.is_up_to_date(_made_of(assignable, folds, inner, seed)):
        raise ValueError(
            f"{path}: the file or the labels have changed since the folds were assigned; delete "
            "the file to assign them again"
        )
    return np.array(record.content["fold_of"], np.int64)


def _made_of(assignable: Assignable, folds: int, inner: int, seed: int) -> str:
    arrays = [hashlib.sha256(array.tobytes()).hexdigest() for array in assignable.arrays]
    numbers = {"folds": folds, "inner": inner, "seed": seed}
    return json.dumps(numbers | {"code": fingerprint.of_folds(), "arrays": arrays})


def assign_inner_folds(assignable: Assignable, folds: int, inner: int, seed: int) -> np.ndarray:
    """Return, for each fold, the inner fold of each sample of its training part, else NOWHERE.

    Args:
        folds: number of folds; 0: the dataset's own test set is held out.
        inner: number of inner folds in each training part.

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

    The part is stratified, or has whole groups, or is the latest in time.

    Args:
        samples: positions of the training samples, (n,) int64, ascending.
        part: share of the samples, or of their groups, in 0..1/2; None: hold back none.

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
    facts: Facts,
    fold_of: np.ndarray | None,
    fold: int | None,
    train_size: int | None,
    seed: int,
    ordered: bool = False,
    final: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples that a run trains on and those that it is scored on.

    Args:
        facts: of the dataset.
        fold_of: the fold of each training sample, (N,) int64, or NOWHERE or FIRST; None: the
            dataset's own test set is held out.
        fold: the fold to hold out.
        train_size: use only this many training samples, the first ones of a seeded order, so that
            smaller sets are nested in larger ones; None: all.
        ordered: whether folds follow each other in time.
        final: whether nothing is held out; the run is then scored on what it trains on, which only
            shows that it has learned.

    Returns:
        (train, held_out), positions in the dataset, int64, ascending.

    Raises:
        ValueError: one of them would be empty, or fewer than `train_size` samples are left.
    """
    samples = np.arange(facts.train)
    if fold_of is None and final:
        train = held_out = samples
    elif fold_of is None:
        train, held_out = samples, np.arange(facts.train, facts.count)
    else:
        train, held_out = samples[before(fold_of, fold, ordered)], samples[fold_of == fold]  # type: ignore[arg-type]
    if train_size is not None:
        shuffled = np.random.default_rng([seed, facts.train]).permutation(samples)
        if train_size > len(train):
            raise ValueError(
                f"expected {train_size} samples to train on; only {len(train)} are left"
            )
        train = np.sort(shuffled[np.isin(shuffled, train)][:train_size])
    if not len(train) or not len(held_out):
        raise ValueError(
            f"{len(train)} samples are left to train on and {len(held_out)} are held out; "
            "expected at least one of each"
        )
    return train, held_out
