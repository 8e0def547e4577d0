"""Folds given from Python: the fold of each sample, or a splitter of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from allcores_study.data.folds import FIRST, Assignable


def of(folds: Any, count: int, answers: Any, groups: Any) -> tuple[str, np.ndarray, int]:
    """Return the name of an array of the data, the array, and the number of folds.

    Args:
        folds: (n,) values, or an object with split(), as sklearn.model_selection has them.
        count: of samples, n.
        answers, groups: of the samples, for the splitter; groups may be None.

    Returns:
        ("folds", the fold of each sample from 0, or -1: never held out, ...), or ("times", the
        position of each sample, ...) if each fold is trained on those before it only.

    Raises:
        ValueError: these are not folds that a study can have.
    """
    if not hasattr(folds, "split"):
        values = pd.Series(np.asarray(folds))
        if values.shape != (count,):
            raise ValueError(f"folds: found {values.shape}; expected a value for each of {count}")
        if values.dtype.kind in "if":
            values = values.where(values >= 0)
        fold_of, found = pd.factorize(values, sort=True)
        if len(found) < 2:
            raise ValueError(f"folds: found {len(found)} of them; expected at least two")
        return "folds", fold_of, len(found)
    parts = list(folds.split(np.zeros((count, 1)), np.asarray(answers), groups))
    fold_of = np.full(count, -1)
    for fold, (_, held_out) in enumerate(parts):
        if (fold_of[held_out] >= 0).any():
            raise ValueError(
                f"folds: {folds} holds samples out more than once; a study has one test fold for "
                "each, and repeats by `seeds`"
            )
        fold_of[held_out] = fold
    samples = np.arange(count)
    if all(
        np.array_equal(trained, samples[fold_of != fold])
        for fold, (trained, _) in enumerate(parts)
        for trained in [np.sort(trained)]
    ):
        return "folds", fold_of, len(parts)
    in_time = Assignable(samples, times=samples).folds(len(parts), 0)
    if np.array_equal(np.where(fold_of < 0, FIRST, fold_of), in_time) and all(
        np.array_equal(trained, samples[in_time < fold]) for fold, (trained, _) in enumerate(parts)
    ):
        return "times", samples, len(parts)
    raise ValueError(
        f"folds: {folds} does not train on all samples that are not held out; expected that, or "
        "TimeSeriesSplit with the default of its other arguments"
    )
