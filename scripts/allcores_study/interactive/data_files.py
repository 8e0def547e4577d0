"""Data given from Python, written to a file that a loader of the workflow reads."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from allcores.files import whole, write_text
from allcores_study.data import class_values
from allcores_study.datasets import _table_files, npz
from allcores_study.interactive import own_folds
from allcores_study.interactive.workflow import HEADER


def entry(
    config_file: Path,
    data: Any,
    target: Any,
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
    if isinstance(folds, Integral) and not isinstance(folds, bool):
        folds = int(folds)
    if isinstance(data, str):
        return _of_name(data, target, groups, folds, options)
    for key in {"name", "path"} & options.keys():
        raise ValueError(f"dataset.{key}: is set by `data`; remove it")
    if isinstance(data, pd.DataFrame):
        return _of_frame(config_file, _named(data), target, groups, folds, options)
    inputs, answers = _parts(data)
    if target is not None:
        raise ValueError("target: has no meaning for arrays, (inputs, answers); remove it")
    if not _is_table(inputs, answers):
        return _of_arrays(config_file, inputs, answers, groups, folds, options)
    frame, target = _joined(inputs, answers)
    return _of_frame(config_file, frame, target, groups, folds, options)


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


def _of_frame(
    config_file: Path,
    frame: pd.DataFrame,
    target: Any,
    groups: Any,
    folds: Any,
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], Any]:
    for key in {"target", "groups"} & options.keys():
        raise ValueError(f"dataset.{key}: write the argument `{key}` of the call instead")
    if target is None:
        raise ValueError("target: expected the column of the DataFrame to predict; found none")
    if not isinstance(target, str | Integral | list):
        raise ValueError(f"target: found a {type(target).__name__}; expected a column's name")
    names: dict[str, Any] = {"target": _as_texts(target)}
    if isinstance(groups, str | Integral):
        names["groups"] = str(groups)
    elif groups is not None:
        values = _of_samples("groups", groups, len(frame))
        frame, names["groups"] = _with_column(frame, "groups", values)
    if not isinstance(folds, int | str):
        used = [*np.ravel(names["target"]), *([names["groups"]] if "groups" in names else [])]
        for name in set(used) - {*frame.columns}:
            raise ValueError(f"data: has no column {name!r}; found {', '.join(frame.columns)}")
        answers, of_group = frame[names["target"]], frame.get(names.get("groups"))
        inputs = frame.drop(columns=used)
        kind, values, folds = own_folds.of(folds, inputs, answers, of_group)
        key = {"folds": "folds", "times": "time"}[kind]
        if key == "time" and "groups" in names:
            raise ValueError("folds: in order of time, they conflict with `groups`; remove one")
        if key in options:
            raise ValueError(f"dataset.{key}: conflicts with the argument `folds`; remove one")
        frame, names[key] = _with_column(frame, key, values)
    of_columns = {
        key: _as_texts(value) if isinstance(value, Integral | list) else value
        for key, value in options.items()
        if key in ("drop", "time", "folds")
    }
    file = config_file.with_suffix(".parquet")
    _write(file, _parquet(frame), config_file)
    return {"name": "table", "path": file.name, **names, **options, **of_columns}, folds


def _of_arrays(
    config_file: Path,
    inputs: Any,
    answers: Any,
    groups: Any,
    folds: Any,
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], Any]:
    task = options.get("task", "classification")
    if not isinstance(task, str) or task not in npz.ANSWER:
        raise ValueError(
            f"dataset: found task {task!r}; arrays have one of {', '.join(npz.ANSWER)}"
        )
    inputs, answers = _array("inputs", inputs), _array("answers", answers)
    if answers.ndim == 2 and answers.shape[1] == 1 and task != "multilabel":
        answers = answers[:, 0]
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
    if groups is not None:
        values = _of_samples("groups", groups, len(inputs))
        arrays["groups"] = values if values.dtype.kind in "iu" else pd.factorize(values)[0]
    if not isinstance(folds, int | str):
        key, values, folds = own_folds.of(folds, inputs, answers, arrays.get("groups"))
        if key == "times" and groups is not None:
            raise ValueError("folds: in order of time, they conflict with `groups`; remove one")
        arrays[key] = values
    content = io.BytesIO()
    np.savez(content, **arrays)
    file = config_file.with_suffix(".npz")
    _write(file, content.getvalue(), config_file)
    return {"name": "npz", "path": file.name, **options}, folds


def estimator(config_file: Path, label: str, content: bytes) -> Path:
    """Write a pickled estimator beside the config, and return its path."""
    file = config_file.with_suffix(f".{label}.pkl")
    _write(file, content, config_file)
    return file


def _parts(data: Any) -> tuple[Any, Any]:
    """Return (inputs, answers), which are arrays of some kind."""
    parts = getattr(data, "tensors", data)  # a torch.utils.data.TensorDataset
    if not isinstance(parts, tuple | list) or len(parts) != 2:
        raise ValueError(
            f"data: found a {type(data).__name__}; expected a DataFrame, two arrays (inputs, "
            "answers), a TensorDataset of two tensors, or the name of a built-in dataset"
        )
    inputs, answers = parts
    counts = len(_array("inputs", inputs)), len(_array("answers", answers))
    if counts[0] != counts[1]:
        raise ValueError(f"data: found {counts[0]} inputs and {counts[1]} answers")
    return inputs, answers


def _array(name: str, value: Any) -> np.ndarray:
    """Return anything like an array as one.

    Raises:
        ValueError: it is a single value, sparse, ragged or masked.
    """
    if np.ma.is_masked(value):
        raise ValueError(f"data: {name} have {np.ma.count_masked(value)} masked values")
    if hasattr(value, "toarray"):
        raise ValueError(f"data: {name} are a {type(value).__name__}; give {name}.toarray()")
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except Exception as error:  # whatever torch raises for bfloat16, or numpy for ragged lists
        raise ValueError(f"data: {name} are not an array: {error}") from None
    if not array.ndim:
        raise ValueError(f"data: {name} are {value!r}; expected an array")
    return array


def _of_samples(name: str, values: Any, count: int) -> np.ndarray:
    """Return a value per sample, (count,), none of which is missing."""
    array = _array(name, values)
    if array.shape != (count,):
        raise ValueError(f"{name}: found {array.shape}; expected ({count},)")
    if pd.isna(array).any():
        raise ValueError(f"{name}: {int(pd.isna(array).sum())} values are missing")
    return array


def _is_table(inputs: Any, answers: Any) -> bool:
    """Return whether only a table keeps what inputs and answers are: names, texts, categoricals."""
    if isinstance(inputs, pd.DataFrame):
        return True
    array = _array("inputs", inputs)
    is_pandas = isinstance(getattr(answers, "dtype", None), pd.api.extensions.ExtensionDtype)
    return array.ndim == 2 and (array.dtype.kind in "OUS" or is_pandas)


def _joined(inputs: Any, answers: Any) -> tuple[pd.DataFrame, str | list[str]]:
    """Return a DataFrame of inputs and answers, and the names of the columns with the answers."""
    inputs = inputs if isinstance(inputs, pd.DataFrame) else pd.DataFrame(_array("inputs", inputs))
    frame = _named(inputs).infer_objects().reset_index(drop=True)
    is_pandas = isinstance(answers, pd.DataFrame | pd.Series)
    answers = pd.DataFrame(answers if is_pandas else _array("answers", answers))
    names = []
    for name, column in answers.reset_index(drop=True).items():
        frame, new = _with_column(frame, "target" if isinstance(name, int) else str(name), column)
        names.append(new)
    return frame, names if len(names) > 1 else names[0]


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a DataFrame whose columns are named by different texts."""
    if frame.columns.nlevels > 1:
        raise ValueError("data: its columns have several levels; name each by one text")
    frame = frame.rename(columns=str)
    for name in frame.columns[frame.columns.duplicated()]:
        raise ValueError(f"data: has the column {name} twice")
    return frame


def _with_column(frame: pd.DataFrame, name: str, values: Any) -> tuple[pd.DataFrame, str]:
    """Return a DataFrame with one more column, and its name, which no other column has."""
    while name in frame:
        name += "_"
    return frame.assign(**{name: getattr(values, "array", values)}), name


def _as_texts(names: Any) -> Any:
    """Return names of columns as a Parquet file has them."""
    return list(map(str, names)) if isinstance(names, list) else str(names)


def _parquet(frame: pd.DataFrame) -> bytes:
    """Return a DataFrame as the content of a file; of categories that are no texts, their numbers.

    Parquet has no others. What they are is told in its metadata.
    """
    described, content = {}, io.BytesIO()
    for name, dtype in frame.dtypes.items():
        if isinstance(dtype, pd.SparseDtype):
            frame = frame.assign(**{name: frame[name].sparse.to_dense()})
        if str(dtype).startswith("dictionary"):  # of Arrow
            frame = frame.assign(**{name: frame[name].astype(object).astype("category")})
    for name in frame.columns[frame.dtypes == "category"]:
        categories = frame[name].cat.categories
        if not all(isinstance(one, str) for one in categories):
            described[name] = class_values.described(categories)
            frame = frame.assign(
                **{name: frame[name].cat.rename_categories([*map(str, range(len(categories)))])}
            )
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
        metadata = {_table_files.CATEGORIES: json.dumps(described)} if described else {}
        table = table.replace_schema_metadata((table.schema.metadata or {}) | metadata)
        pq.write_table(table, content)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise ValueError(f"data: the DataFrame cannot be saved: {error}") from None
    return content.getvalue()


def _classes(answers: np.ndarray) -> dict[str, np.ndarray]:
    """Return labels from 0, and the classes that they stand for where these are something else."""
    if answers.ndim != 1 or not answers.size:
        return {}
    if answers.dtype.kind == "O":
        answers = pd.Series(answers).infer_objects().to_numpy()
    if answers.dtype == np.float16:
        answers = answers.astype(np.float32)
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
    known = config_file.read_text(errors="replace") if config_file.exists() else HEADER
    if file.exists() and file.read_bytes() == content:
        return
    if file.name not in known:
        if file.exists():
            raise ValueError(f"name: {file} exists and was not written from Python; choose another")
        # Before the file: the call may be refused, or end, before it writes its config.
        write_text(config_file, f"{known}# with {file.name}\n")
    with whole(file) as part:
        part.write_bytes(content)
