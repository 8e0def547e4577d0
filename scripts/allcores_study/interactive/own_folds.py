"""Folds given from Python: the fold of each sample, or a splitter of scikit-learn."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pandas as pd

from allcores_study.data.folds import FIRST, Assignable
from allcores_study.datasets import table

ARRAYS = list | tuple | np.ndarray | pd.Series | pd.Index


def of(folds: Any, inputs: Any, answers: Any, groups: Any) -> tuple[str, np.ndarray, int]:
    """Return the name of an array of the data, the array, and the number of folds.

    Args:
        folds: (n,) values, or an object with split(), as sklearn.model_selection has them.
        inputs, answers, groups: of the n samples, for the splitter; groups may be None.

    Returns:
        ("folds", the fold of each sample from 0, or -1: never held out, ...), or ("times", the
        position of each sample, ...) if each fold is trained on those before it only.

    Raises:
        ValueError: these are not folds that a study can have.
    """
    samples = np.arange(len(inputs))
    if isinstance(folds, ARRAYS) or hasattr(folds, "__array__"):
        return "folds", *_of_values(folds, len(samples))
    if inspect.isclass(folds) or not hasattr(folds, "split"):
        found = f"the class {folds.__name__}" if inspect.isclass(folds) else repr(folds)
        raise ValueError(
            f"folds: found {found}; expected a number, 'test', an array, or a splitter such as "
            "GroupKFold(5)"
        )
    parts = _split(folds, inputs, answers, groups)
    fold_of = np.full(len(samples), -1)
    for fold, (_, held_out) in enumerate(parts):
        if (fold_of[held_out] >= 0).any():
            raise ValueError(
                f"folds: {folds} holds samples out more than once; a study has one test fold for "
                "each, and repeats by `seeds`"
            )
        fold_of[held_out] = fold
    trained = [np.sort(trained) for trained, _ in parts]
    if all(np.array_equal(trained[fold], samples[fold_of != fold]) for fold in range(len(parts))):
        return "folds", fold_of, len(parts)
    in_time = np.array([])
    if len(samples) > len(parts):
        in_time = Assignable(samples, times=samples).folds(len(parts), 0)
    if np.array_equal(np.where(fold_of < 0, FIRST, fold_of), in_time) and all(
        np.array_equal(trained[fold], samples[in_time < fold]) for fold in range(len(parts))
    ):
        return "times", samples, len(parts)
    raise ValueError(
        f"folds: {folds} does not train on all samples that are not held out; expected that, or "
        "TimeSeriesSplit with the default of its other arguments"
    )


def _of_values(folds: Any, count: int) -> tuple[np.ndarray, int]:
    """Return (the fold of each sample, their number)."""
    try:
        values = np.asarray(folds)
    except Exception as error:  # whatever numpy and torch raise
        raise ValueError(f"folds: not an array: {error}") from None
    if values.shape != (count,):
        raise ValueError(f"folds: found {values.shape}; expected a value for each of {count}")
    fold_of = table.folds_of(pd.Series(values))
    number = int(fold_of.max()) + 1
    if number < 2:
        raise ValueError(f"folds: found {number} of them; expected at least two")
    return fold_of, number


def _split(
    splitter: Any, inputs: Any, answers: Any, groups: Any
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (positions that are trained on, positions that are held out) of each fold."""
    is_one = np.ndim(answers) == 1
    numbered = pd.factorize(answers, sort=False)[0] if is_one else answers
    is_number = is_one and pd.api.types.is_float_dtype(answers)
    given = inputs, answers if is_number else numbered, groups
    positions = np.arange(len(inputs))
    try:
        once, again = (
            [tuple(positions[part] for part in parts) for parts in splitter.split(*given)]
            for _ in range(2)
        )
    except Exception as error:  # whatever the splitter raises
        text = f"{type(error).__name__}: {error}"
        raise ValueError(f"folds: {splitter} cannot split these data ({text})") from None
    if len(once) < 2:
        raise ValueError(f"folds: {splitter} gives {len(once)} folds; expected at least two")
    if not all(
        np.array_equal(one, other)
        for of_once, of_again in zip(once, again, strict=True)
        for one, other in zip(of_once, of_again, strict=True)
    ):
        raise ValueError(f"folds: {splitter} draws other folds each time; give it a random_state")
    return once
