"""Data given from Python, written to a file that a loader of the workflow reads."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyarrow import ArrowException

from allcores.files import whole
from allcores_study.datasets import npz
from allcores_study.interactive import own_folds


def entry(
    config_file: Path,
    data: Any,
    target: str | list[str] | None,
    groups: Any,
    folds: Any,
    options: Mapping[str, Any],
) -> tuple[dict[str, Any] | None, Any]:
    """Write data beside the config; return their entry there and the study's number of folds.

    The entry is None for a built-in dataset without options. A file whose content would stay the
    same is not written.

    Args:
        config_file: of the study; the data are beside it.
        data: a DataFrame; (inputs, answers) as arrays, tensors or frames; a TensorDataset of two
            tensors; or the name of a built-in dataset.
        target: the column to predict, or several.
        groups: a column of a DataFrame, or an array, (n,), by which samples are held out together;
            None: samples are independent.
        folds: their number, "test", an array, (n,), of the fold of each sample, or a splitter of
            scikit-learn.
        options: further keys of the entry.

    Raises:
        ValueError: the data are of another kind, or cannot be written.
    """
    if isinstance(folds, np.generic):
        folds = folds.item()
    if isinstance(data, str):
        return _of_name(data, target, groups, folds, options)
    for key in {"name", "path"} & options.keys():
        raise ValueError(f"dataset.{key}: is set by `data`; remove it")
    if not isinstance(data, pd.DataFrame):
        parts = _parts(data)
        if target is not None:
            raise ValueError("target: has no meaning for arrays, (inputs, answers); remove it")
        if not _is_table(parts[0]):
            arrays = _arrays(*parts, options.get("task", "classification"))
            count = len(arrays[next(iter(arrays))])
            if groups is not None:
                arrays["groups"] = np.unique(np.asarray(groups), return_inverse=True)[1]
            number = folds
            if not isinstance(folds, int | str):
                answers = arrays[[*arrays][1]]
                key, arrays[key], number = own_folds.of(folds, count, answers, groups)
            content = io.BytesIO()
            np.savez(content, **arrays)  # type: ignore[arg-type]
            file = config_file.with_suffix(".npz")
            _write(file, content.getvalue(), config_file)
            return {"name": "npz", "path": file.name, **options}, number
        data, target = _frame(*parts)
    for key in {"target", "groups"} & options.keys():
        raise ValueError(f"dataset.{key}: write the argument `{key}` of the call instead")
    if target is None:
        raise ValueError("target: expected the column of the DataFrame to predict; found none")
    if not isinstance(target, str | int | list):
        raise ValueError(f"target: found a {type(target).__name__}; expected a column's name")
    names: dict[str, Any] = {"target": _as_texts(target)}
    if isinstance(groups, str | int):
        names["groups"] = str(groups)
    elif groups is not None:
        data, names["groups"] = _with_column(data, "groups", groups)
    number = folds
    if not isinstance(folds, int | str):
        answers = data.rename(columns=str)[names["target"]]
        of_group = data.rename(columns=str)[names["groups"]] if "groups" in names else None
        key, values, number = own_folds.of(folds, len(data), answers, of_group)
        data, names[{"folds": "folds", "times": "time"}[key]] = _with_column(data, key, values)
    file = config_file.with_suffix(".parquet")
    _write(file, _parquet(data), config_file)
    return {"name": "table", "path": file.name, **names, **options}, number


def estimator(config_file: Path, label: str, content: bytes) -> Path:
    """Write a pickled estimator beside the config, and return its path."""
    file = config_file.with_suffix(f".{label}.pkl")
    _write(file, content, config_file)
    return file


def _of_name(
    name: str, target: Any, groups: Any, folds: Any, options: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, Any]:
    if Path(name).suffix:
        raise ValueError(f"data: found {name!r}; expected a DataFrame, as pandas reads it")
    if options.get("name", name) != name:
        raise ValueError(f"dataset.name: found {options['name']!r}, but data is {name!r}")
    if not isinstance(folds, int | str):
        raise ValueError("folds: the name of a dataset needs their number, or 'test'")
    for key, value in {"target": target, "groups": groups}.items():
        if value is not None:
            raise ValueError(f"{key}: has no meaning for the name of a dataset; remove it")
    return {"name": name, **options} if options else None, folds


def _parts(data: Any) -> tuple[Any, Any]:
    """Return (inputs, answers)."""
    parts = getattr(data, "tensors", data)  # a torch.utils.data.TensorDataset
    if not isinstance(parts, tuple | list) or len(parts) != 2:
        raise ValueError(
            f"data: found a {type(data).__name__}; expected a DataFrame, two arrays (inputs, "
            "answers), a TensorDataset of two tensors, or the name of a built-in dataset"
        )
    for name, part in zip(("inputs", "answers"), parts, strict=True):
        if np.ma.is_masked(part):
            raise ValueError(f"data: {name} have {np.ma.count_masked(part)} masked values")
    return tuple(parts)


def _is_table(inputs: Any) -> bool:
    """Return whether inputs have columns of texts, or names of columns."""
    return isinstance(inputs, pd.DataFrame) or (
        np.ndim(inputs) == 2 and np.asarray(inputs).dtype.kind in "OUS"
    )


def _frame(inputs: Any, answers: Any) -> tuple[pd.DataFrame, str | list[str]]:
    """Return a DataFrame of inputs and answers, and the names of the columns with the answers."""
    frame = pd.DataFrame(inputs).rename(columns=str).infer_objects().reset_index(drop=True)
    found = pd.DataFrame(answers).reset_index(drop=True)
    if len(frame) != len(found):
        raise ValueError(f"data: found {len(frame)} inputs and {len(found)} answers")
    names = []
    for name, column in found.items():
        frame, new = _with_column(frame, "target" if isinstance(name, int) else str(name), column)
        names.append(new)
    return frame, names if len(names) > 1 else names[0]


def _with_column(frame: pd.DataFrame, name: str, values: Any) -> tuple[pd.DataFrame, str]:
    """Return a DataFrame with one more column, and its name, which no other column has."""
    while name in map(str, frame.columns):
        name += "_"
    if np.shape(values) != (len(frame),):
        raise ValueError(f"{name}: found {np.shape(values)}; expected ({len(frame)},)")
    is_own = isinstance(values, pd.Series)
    return frame.assign(**{name: values.array if is_own else np.asarray(values)}), name


def _as_texts(names: Any) -> Any:
    """Return names of columns as a Parquet file has them."""
    return list(map(str, names)) if isinstance(names, list) else str(names)


def _parquet(frame: pd.DataFrame) -> bytes:
    content = io.BytesIO()
    try:
        frame.rename(columns=str).to_parquet(content, index=False)
    except (ValueError, TypeError, OverflowError, ArrowException) as error:
        raise ValueError(f"data: the DataFrame cannot be saved: {error}") from None
    return content.getvalue()


def _arrays(inputs: Any, answers: Any, task: str) -> dict[str, np.ndarray]:
    """Return name -> array of an .npz for the loader npz: inputs, answers, and perhaps others."""
    if task not in npz.ANSWER:
        raise ValueError(
            f"dataset: found task {task!r}; arrays have one of {', '.join(npz.ANSWER)}"
        )
    try:
        inputs, answers = map(np.asarray, (inputs, answers))
    except (ValueError, TypeError) as error:  # ragged lists, or bfloat16
        raise ValueError(f"data: not arrays: {error}") from None
    is_image = inputs.dtype == np.uint8 and inputs.ndim >= 3
    arrays = {"images" if is_image else "inputs": inputs, npz.ANSWER[task]: answers}
    if task == "classification":
        arrays |= _classes(answers)
    if kinds := {name for name, array in arrays.items() if array.dtype.kind == "O"}:
        raise ValueError(f"data: {', '.join(sorted(kinds))} are objects; expected numbers")
    if inputs.dtype.kind == "f" and not np.isfinite(inputs).all():
        first = np.argwhere(~np.isfinite(inputs))[0].tolist()
        found = inputs[tuple(first)]
        raise ValueError(f"data: inputs{first} is {found}; expected finite numbers")
    return arrays


def _classes(answers: np.ndarray) -> dict[str, np.ndarray]:
    """Return labels from 0, and the classes that they stand for where these are something else."""
    if answers.ndim == 2 and answers.shape[1] == 1:
        answers = answers[:, 0]
    if answers.ndim != 1 or not answers.size:
        return {}
    if answers.dtype.kind == "f" and not (answers == np.floor(answers)).all():
        raise ValueError(
            "data: the answers are fractions, or missing; `dataset=dict(task='regression')` "
            "predicts numbers"
        )
    try:
        classes, labels = np.unique(answers, return_inverse=True)
    except TypeError as error:  # texts beside numbers
        raise ValueError(f"data: the answers are no classes: {error}") from None
    if classes.dtype.kind == "O" and all(isinstance(one, str) for one in classes):
        classes = classes.astype(str)
    if classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(len(classes))):
        return {"labels": labels}
    return {"labels": labels, npz.CLASSES: classes}


def _write(file: Path, content: bytes, config_file: Path) -> None:
    """Write a file unless it is the same; replace only that of an earlier call."""
    if file.exists():
        if file.read_bytes() == content:
            return
        if not (config_file.exists() and file.name in config_file.read_text()):
            raise ValueError(f"name: {file} exists and was not written from Python; choose another")
    with whole(file) as part:
        part.write_bytes(content)
