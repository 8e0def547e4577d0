"""Folds and splits: numbers per sample beside a dataset; nothing is ever copied to make one."""

import hashlib
import json
from pathlib import Path

import numpy as np

from allcores.files import write_text


def assign_folds(labels, folds, seed):
    """The fold in which each sample is held out: (N,) int64, stratified by class, seeded."""
    from sklearn.model_selection import StratifiedKFold

    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    fold_of = np.empty(len(labels), np.int64)
    for fold, (_, held_out) in enumerate(splitter.split(np.zeros(len(labels)), labels)):
        fold_of[held_out] = fold
    return fold_of


def of_run(run, labels, file=None):
    """The fold of each training sample as a Run splits them, (N,) int64; None: by no folds.

    Args:
        labels: of the training samples, (N,) int64.
        file: where write_folds() or write_inner_folds() has kept them; None: assign them now.

    Raises:
        ValueError: see read_folds().
    """
    if run.inner_folds:
        if file is not None:
            return read_inner_folds(file, labels, run.fold)
        inner_of = assign_inner_folds(labels, run.folds or 0, run.inner_folds, run.seed)
        return inner_of[run.fold or 0]
    if run.folds is None:
        return None
    return (
        assign_folds(labels, run.folds, run.seed)
        if file is None
        else read_folds(file, labels, run.folds)
    )


def write_folds(path, labels, folds, seed):
    """Assign samples to folds and keep that in JSON, with a checksum of it and the labels."""
    fold_of = assign_folds(labels, folds, seed)
    content = {"sha256": _checksum(fold_of, labels), "fold_of": fold_of.tolist()}
    write_text(path, json.dumps(content))


def read_folds(path, labels, folds):
    """What write_folds wrote: the fold of each sample, (N,) int64.

    Raises:
        ValueError: the file was changed since, or is of other labels.
    """
    return _read(path, "fold_of", labels, lambda found: set(found) == {*range(folds)})


def assign_inner_folds(labels, folds, inner, seed):
    """For each of the folds, the inner fold of each sample of its training part; -1 elsewhere.

    Args:
        folds: how many there are; 0: the dataset's own test set is held out.
        inner: number of folds that a training part is cut into.

    Returns:
        (max(folds, 1), N) int64, stratified by class, seeded.
    """
    fold_of = assign_folds(labels, folds, seed) if folds else np.full(len(labels), -1)
    inner_of = np.full((max(folds, 1), len(labels)), -1, np.int64)
    for fold in range(len(inner_of)):
        train = fold_of != fold
        inner_of[fold, train] = assign_folds(labels[train], inner, seed)
    return inner_of


def write_inner_folds(path, labels, folds, inner, seed):
    """Keep what assign_inner_folds() says in JSON, with a checksum of it and the labels."""
    inner_of = assign_inner_folds(labels, folds, inner, seed)
    content = {"sha256": _checksum(inner_of, labels), "inner_of": inner_of.tolist()}
    write_text(path, json.dumps(content))


def read_inner_folds(path, labels, fold):
    """What write_inner_folds wrote for a fold: (N,) int64.

    Args:
        fold: None: the dataset's own test set is held out.

    Raises:
        ValueError: the file was changed since, or is of other labels.
    """
    return _read(path, "inner_of", labels, lambda found: True)[fold or 0]


def _read(path, key, labels, is_right):
    try:
        content = json.loads(Path(path).read_text())
        found = np.array(content[key], np.int64)
        sound = content["sha256"] == _checksum(found, labels) and is_right(found)
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise ValueError(
            f"{path} is not what was assigned, or the labels have changed. Delete it to assign the "
            "samples to folds anew"
        )
    return found


def _checksum(*arrays):
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def split(info, fold_of, fold, train_size, seed):
    """Which samples a run trains on and which it is scored on.

    Args:
        info: the content of dataset.json, see storage.Dataset.
        fold_of: the fold of each training sample, (N,) int64, -1 where it is in no part; None: the
            dataset's own test set is held out.
        fold: the fold to hold out.
        train_size: use only that many training samples; they are the first of one seeded order, so
            that smaller sets are nested in larger ones. None: all.

    Returns:
        (train, held_out), positions in the dataset, int64, ascending.

    Raises:
        ValueError: one of them would be empty, or there are fewer training samples than asked for.
    """
    samples = np.arange(info["train"])
    if fold_of is None:
        train, held_out = samples, np.arange(info["train"], info["shape"][0])
    else:
        train, held_out = samples[(fold_of != fold) & (fold_of >= 0)], samples[fold_of == fold]
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
