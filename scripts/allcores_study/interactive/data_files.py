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


def entry(
    config_file: Path,
    data: Any,
    target: str | list[str] | None,
    groups: Any,
    options: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Write data beside the config and return its entry there; None: it names a built-in dataset.

    A file whose content would stay the same is not written.

    Args:
        config_file: of the study; the data are beside it.
        data: a DataFrame; (inputs, answers) as arrays or tensors; a TensorDataset of two tensors;
            or the name of a built-in dataset.
        target: the column to predict, or several.
        groups: the column of a DataFrame, or an array, (n,) integers, by which samples are held out
            together; None: samples are independent.
        options: further keys of the entry.

    Raises:
        ValueError: the data are of another kind, or cannot be written.
    """
    if isinstance(data, pd.DataFrame):
        if target is None:
            raise ValueError("target: expected the column of the DataFrame to predict; found none")
        if not isinstance(target, str | int | list):
            raise ValueError(f"target: found a {type(target).__name__}; expected a column's name")
        if not isinstance(groups, str | int | None):
            raise ValueError(f"groups: found a {type(groups).__name__}; expected a column's name")
        file = config_file.with_suffix(".parquet")
        _write(file, _parquet(data), config_file)
        names = {"target": target} | ({} if groups is None else {"groups": groups})
        own = {key: _as_texts(name) for key, name in names.items()}
        return {"name": "table", "path": file.name, **own, **options}
    if isinstance(data, str):
        if Path(data).suffix:
            raise ValueError(f"data: found {data!r}; expected a DataFrame, as pandas reads it")
        if target is not None:
            raise ValueError("target: has no meaning for a built-in dataset; remove it")
        if groups is not None:
            raise ValueError("groups: has no meaning for a built-in dataset; remove it")
        return {"name": data, **options} if options else None
    content = _arrays(data, groups, options.get("task", "classification"))
    if target is not None:
        raise ValueError("target: has no meaning for arrays, (inputs, answers); remove it")
    file = config_file.with_suffix(".npz")
    _write(file, content, config_file)
    return {"name": "npz", "path": file.name, **options}


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


def _arrays(data: Any, groups: Any, task: str) -> bytes:
    """Return the content of an .npz with inputs and answers, as the loader npz reads it."""
    parts = getattr(data, "tensors", data)  # a torch.utils.data.TensorDataset
    if not isinstance(parts, tuple | list) or len(parts) != 2:
        raise ValueError(
            f"data: found a {type(data).__name__}; expected a DataFrame, two arrays (inputs, "
            "answers), a TensorDataset of two tensors, or the name of a built-in dataset"
        )
    if task not in npz.ANSWER:
        raise ValueError(
            f"dataset: found task {task!r}; arrays have one of {', '.join(npz.ANSWER)}"
        )
    try:
        inputs, answers = map(np.asarray, parts)
    except (ValueError, TypeError) as error:  # ragged lists, or bfloat16
        raise ValueError(f"data: not arrays: {error}") from None
    is_image = inputs.dtype == np.uint8 and inputs.ndim >= 3
    arrays = {"images" if is_image else "inputs": inputs, npz.ANSWER[task]: answers}
    if groups is not None:
        arrays["groups"] = np.asarray(groups)
    if kinds := {name for name, array in arrays.items() if array.dtype.kind == "O"}:
        raise ValueError(f"data: {', '.join(sorted(kinds))} are objects; expected numbers")
    if inputs.dtype.kind == "f" and not np.isfinite(inputs).all():
        first = np.argwhere(~np.isfinite(inputs))[0].tolist()
        found = inputs[tuple(first)]
        raise ValueError(f"data: inputs{first} is {found}; expected finite numbers")
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def _write(file: Path, content: bytes, config_file: Path) -> None:
    """Write a file unless it is the same; replace only that of an earlier call."""
    if file.exists():
        if file.read_bytes() == content:
            return
        if not (config_file.exists() and file.name in config_file.read_text()):
            raise ValueError(f"name: {file} exists and was not written from Python; choose another")
    with whole(file) as part:
        part.write_bytes(content)
