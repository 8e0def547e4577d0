"""Folds and splits: numbers per sample beside a dataset; nothing is ever copied to make one."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from allcores.files import write_text

# In the place of a fold: in no part; and trained on only, as nothing comes before it.
NOWHERE, FIRST = -1, -2


@dataclass(frozen=True)
class Assignable:
    """What folds are assigned by: the training part of a dataset.

    Attributes:
        targets: (N,) int64 of classes, by which folds are stratified, or float64 of numbers.
        groups: (N,) int64; those of one are held out together; None: every sample is for itself.
        times: (N,) int64; folds come one after the other; None: samples have no order.
    """

    targets: np.ndarray
    groups: np.ndarray | None = None
    times: np.ndarray | None = None

    @classmethod
    def of(cls, dataset):
        """That of an opened storage.Dataset."""
        return cls(dataset.targets[: dataset.info["train"]], dataset.groups, dataset.times)

    @property
    def arrays(self):
        return [each for each in (self.targets, self.groups, self.times) if each is not None]

    def part(self, chosen):
        """Those samples alone.

        Args:
            chosen: (N,) bool.
        """
        every = (self.targets, self.groups, self.times)
        return Assignable(*(each if each is None else each[chosen] for each in every))

    def folds(self, count, seed):
        """The fold in which each sample is held out: (N,) int64, seeded.

        By scikit-learn's StratifiedKFold and StratifiedGroupKFold of classes, KFold and GroupKFold
        of numbers; by time as TimeSeriesSplit, where the earliest part is FIRST and those of one
        time are in one part.
        """
        from sklearn import model_selection

        if self.times is not None:
            return self._parts_of_time(count)
        is_class = self.targets.dtype.kind == "i"
        make = {
            (True, False): model_selection.StratifiedKFold,
            (True, True): model_selection.StratifiedGroupKFold,
            (False, False): model_selection.KFold,
            (False, True): model_selection.GroupKFold,
        }[is_class, self.groups is not None]
        splitter = make(count, shuffle=True, random_state=seed)
        fold_of = np.empty(len(self.targets), np.int64)
        parts = splitter.split(np.zeros(len(self.targets)), self.targets, self.groups)
        for fold, (_, held_out) in enumerate(parts):
            fold_of[held_out] = fold
        if len(np.unique(fold_of)) < count:
            raise ValueError(f"{count} folds leave one of them empty: there are too few groups")
        return fold_of

    def drawn(self, part, seed):
        """Which samples are in a part: (N,) bool.

        By scikit-learn's StratifiedShuffleSplit of classes, ShuffleSplit of numbers and
        GroupShuffleSplit; by time the latest.

        Raises:
            ValueError: there are too few samples, groups or times.
        """
        from sklearn import model_selection

        if self.times is not None:
            size = max(1, round(part * len(self.times)))
            held = self.times >= np.sort(self.times)[-size]
            if held.all():
                raise ValueError("there are too few times")
            return held
        make = model_selection.ShuffleSplit
        if self.groups is not None:
            make = model_selection.GroupShuffleSplit
        elif self.targets.dtype.kind == "i":
            make = model_selection.StratifiedShuffleSplit
        splitter = make(1, test_size=part, random_state=seed)
        ((_, chosen),) = splitter.split(np.zeros(len(self.targets)), self.targets, self.groups)
        return np.isin(np.arange(len(self.targets)), chosen)

    def _parts_of_time(self, count):
        """FIRST, then the folds in their order; as equal in size as times allow, none is empty."""
        times, of_sample, sizes = np.unique(self.times, return_inverse=True, return_counts=True)
        if len(times) < count + 1:
            raise ValueError(
                f"{count} folds, one after the other, take more than {len(times)} times"
            )
        size = max(1, len(self.times) // (count + 1))
        first = len(self.times) - count * size
        earlier = np.cumsum(sizes) - sizes
        parts = np.where(earlier < first, 0, 1 + (earlier - first) // size)
        # A time of many samples passes over no part, and leaves a time for each that follows.
        for each in range(1, len(times)):
            fewest = count + 1 + each - len(times)
            parts[each] = max(fewest, min(parts[each], parts[each - 1] + 1))
        return np.where(parts == 0, FIRST, parts - 1)[of_sample]


def before(fold_of, fold, ordered):
    """Which samples may be trained on where a fold is held out: (N,) bool.

    Args:
        fold_of: the fold of each sample, (N,) int64, or NOWHERE or FIRST.
        ordered: whether folds come one after the other.
    """
    return (fold_of != NOWHERE) & (fold_of < fold if ordered else fold_of != fold)


def of_run(run, assignable, file=None):
    """The fold of each training sample as a Run splits them, (N,) int64; None: by no folds.

    Args:
        assignable: Assignable, of the dataset.
        file: where write_folds() or write_inner_folds() has kept them; None: assign them now.

    Raises:
        ValueError: see read_folds().
    """
    if run.inner_folds:
        if file is not None:
            return read_inner_folds(file, assignable, run.fold)
        inner_of = assign_inner_folds(assignable, run.folds or 0, run.inner_folds, run.seed)
        return inner_of[run.fold or 0]
    if run.folds is None:
        return None
    return (
        assignable.folds(run.folds, run.seed)
        if file is None
        else read_folds(file, assignable, run.folds)
    )


def write_folds(path, assignable, folds, seed):
    """Assign samples to folds and keep that in JSON, with a checksum of it and the targets."""
    fold_of = assignable.folds(folds, seed)
    content = {"sha256": _checksum(fold_of, assignable), "fold_of": fold_of.tolist()}
    write_text(path, json.dumps(content))


def read_folds(path, assignable, folds):
    """What write_folds wrote: the fold of each sample, (N,) int64.

    Raises:
        ValueError: the file was changed since, or is of other targets.
    """
    return _read(path, "fold_of", assignable, lambda found: {*found} - {FIRST} == {*range(folds)})


def assign_inner_folds(assignable, folds, inner, seed):
    """For each of the folds, the inner fold of each sample of its training part, else NOWHERE.

    Args:
        folds: how many there are; 0: the dataset's own test set is held out.
        inner: number of folds that a training part is cut into.

    Returns:
        (max(folds, 1), N) int64, seeded.
    """
    count = len(assignable.targets)
    ordered = assignable.times is not None
    fold_of = assignable.folds(folds, seed) if folds else np.full(count, FIRST)
    inner_of = np.full((max(folds, 1), count), NOWHERE, np.int64)
    for fold in range(len(inner_of)):
        train = before(fold_of, fold, ordered)
        inner_of[fold, train] = assignable.part(train).folds(inner, seed)
    return inner_of


def write_inner_folds(path, assignable, folds, inner, seed):
    """Keep what assign_inner_folds() says in JSON, with a checksum of it and the targets."""
    inner_of = assign_inner_folds(assignable, folds, inner, seed)
    content = {"sha256": _checksum(inner_of, assignable), "inner_of": inner_of.tolist()}
    write_text(path, json.dumps(content))


def read_inner_folds(path, assignable, fold):
    """What write_inner_folds wrote for a fold: (N,) int64.

    Args:
        fold: None: the dataset's own test set is held out.

    Raises:
        ValueError: the file was changed since, or is of other targets.
    """
    return _read(path, "inner_of", assignable, lambda found: True)[fold or 0]


def hold_back(assignable, samples, part, seed):
    """Cut off a part of the training samples, on which to judge the weights during training.

    It is stratified, or has whole groups, or is the latest, if samples have an order.

    Args:
        samples: positions of the training samples, (n,) int64, ascending.
        part: how many of them, or of their groups, in 0..1/2; None: none.

    Returns:
        (the samples to train on, the others), int64, ascending.

    Raises:
        ValueError: there are too few samples or groups.
    """
    if part is None:
        return samples, samples[:0]
    chosen = np.isin(np.arange(len(assignable.targets)), samples)
    try:
        held = assignable.part(chosen).drawn(part, seed)
    except ValueError as error:
        raise ValueError(f"no validation part of {part:g} can be held back: {error}") from None
    return samples[~held], samples[held]


def _read(path, key, assignable, is_right):
    try:
        content = json.loads(Path(path).read_text())
        found = np.array(content[key], np.int64)
        sound = content["sha256"] == _checksum(found, assignable) and is_right(found)
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise ValueError(
            f"{path} is not what was assigned, or the labels have changed. Delete it to assign the "
            "samples to folds anew"
        )
    return found


def _checksum(found, assignable):
    parts = (array.tobytes() for array in (found, *assignable.arrays))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def split(info, fold_of, fold, train_size, seed, ordered=False):
    """Which samples a run trains on and which it is scored on.

    Args:
        info: the content of dataset.json, see storage.Dataset.
        fold_of: the fold of each training sample, (N,) int64, or NOWHERE or FIRST; None: the
            dataset's own test set is held out.
        fold: the fold to hold out.
        train_size: use only that many training samples; they are the first of one seeded order, so
            that smaller sets are nested in larger ones. None: all.
        ordered: whether folds come one after the other.

    Returns:
        (train, held_out), positions in the dataset, int64, ascending.

    Raises:
        ValueError: one of them would be empty, or there are fewer training samples than asked for.
    """
    samples = np.arange(info["train"])
    if fold_of is None:
        train, held_out = samples, np.arange(info["train"], info["shape"][0])
    else:
        train, held_out = samples[before(fold_of, fold, ordered)], samples[fold_of == fold]
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
