"""Your own table, a CSV or Parquet file: one column is the target, the others are features.

Numbers are scaled by the mean and standard deviation of the training part of each fold. Texts and
truth values become one indicator per category. Missing values are an error, unless `missing: mean`
replaces them by the mean of the training part (texts: by no category). Empty cells are missing, and
so is what `missing_values` lists.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.data.storage import Samples
from allcores_study.datasets import _table_files, _table_notes
from allcores_study.tasks import base as tasks

if TYPE_CHECKING:
    from pandas import DataFrame, Index, Series

ALLOWED = {
    "task": ("classification", "regression", "multilabel"),
    "missing": ("error", "mean"),
    "header": (True, False),
}
# A column of texts holds names or dates if it has more than FEW_CATEGORIES, and more than
# MOST_CATEGORIES or more than half as many categories as rows.
MOST_CATEGORIES, FEW_CATEGORIES = 1000, 20
SHOWN = 5  # values in a message
LONGEST = 60  # letters of a value in a message
LARGEST = 1e100  # number in a column, whose square can be added up
CHUNK = 1 << 22  # encoded values in memory at a time


def load(
    folder: Path | None,
    *,
    path: str,
    target: Any,
    task: str = "classification",
    drop: Sequence[str] = (),
    groups: str | None = None,
    time: str | None = None,
    folds: str | None = None,
    missing: str = "error",
    missing_values: Sequence[Any] = (),
    header: bool = True,
) -> Samples:
    """The table in the file at path.

    Args:
        target: the column to predict; for regression and multilabel, also a list of several.
        drop: columns that are not features.
        groups: a column, not a feature; rows with the same value are held out together.
        time: a column of numbers or dates, not a feature; held-out rows come after those that are
            trained on.
        folds: a column, not a feature, with the fold in which a row is held out; a row without one,
            or with a negative number, is held out in none.
        missing: "error", or "mean", which replaces missing numbers.
        missing_values: numbers and texts that stand for a missing value, such as -999.
        header: see _table_files.read().

    Raises:
        ValueError: there is no such file or column, or a value cannot be used.
    """
    names = [target if task == "classification" else None, groups]
    named = [name for name in names if isinstance(name, str)]
    reading: dict[str, Any] = {"missing_values": missing_values, "header": header}
    read = _table_files.read(path, named=named, **reading)
    frame = read.frame
    answers, used = answers_of(path, frame, target, task, (groups, time, folds), drop)
    features = _table_files.with_texts(frame.drop(columns=list({*used, *drop})))
    if frame.empty or features.columns.empty:
        raise ValueError(f"{path}: has {len(frame)} rows and {len(features.columns)} features")
    if missing == "error":
        refuse_missing(path, features, "`missing: mean` replaces them by the mean")
    columns = columns_of(path, features)
    if not columns:
        raise ValueError(f"{path}: no feature has a value in any row")
    for column in columns:
        if column["category"] is None:
            numbers(path, features[column["name"]])
    # Some rows at a time: texts of many different values would take many times the file's size.
    rows = max(1, CHUNK // len(columns))
    parts = (features.iloc[start : start + rows] for start in range(0, len(features), rows))
    numbers_to_predict = frame[[*map(str, np.ravel(target))]] if task == "regression" else None
    return Samples(
        shape=(len(features), len(columns)),
        chunks=(encoded(path, part, columns) for part in parts),
        **answers,
        columns=columns,
        dtype=np.float64,
        notes=[
            *_table_notes.of(read, features, [*named, *filter(None, [time])], numbers_to_predict),
            *_table_notes.of_copies(features, answers["targets"], answers["groups"]),
        ],
    )


def answers_of(
    path: str,
    frame: DataFrame,
    target: Any,
    task: str,
    split_by: tuple[str | None, str | None, str | None],
    drop: Sequence[str] = (),
) -> tuple[dict[str, Any], list[str]]:
    """Return the targets and the split of the rows.

    Args:
        target, task, drop: as in load().
        split_by: groups, time and folds, as in load().

    Returns:
        ({field of Samples: value}, the names of the columns that these are read from)

    Raises:
        ValueError: there is no such column, or it cannot be predicted or split by.
    """
    groups, time, folds = split_by
    if time and (groups or folds):
        other = "groups" if groups else "folds"
        raise ValueError(f"{path}: found {other} and time; expected one of them")
    targets_named = _targets_named(path, target, task)
    used = [*targets_named, *filter(None, split_by)]
    for column in (*used, *drop):
        if not isinstance(column, str):
            raise ValueError(f"{path}: found the column {column!r}; expected a name, in quotes")
        if column not in frame:
            found = ", ".join(map(repr, frame.columns))
            hint = _table_files.hint_at_header(frame)
            raise ValueError(f"{path}: has no column {column!r}; found {found}{hint}")
    needed = frame[[name for name in used if name != folds]]
    refuse_missing(path, needed, "remove these rows: the values are needed")
    classes = None
    if task != "classification":
        columns_of_targets = [_target(path, frame[name], task) for name in targets_named]
        names = target if isinstance(target, list) else None
        targets = np.stack(columns_of_targets, axis=1) if names else columns_of_targets[0]
    else:
        targets, classes = _classes(path, frame[target])
        names = list(map(str, classes))
        if len(names) < 2:
            found = f"a single value, {names[0]}" if names else "no value"
            raise ValueError(f"{path}: the column {target} has {found}; expected at least two")
    group_of, of_groups = _classes(path, frame[groups]) if groups else (None, None)
    return {
        "targets": targets,
        "classes": classes,
        "task": tasks.named(task, len(names) if names else 1),
        "names": names,
        "train": len(frame),
        "groups": group_of,
        "group_names": None if of_groups is None else list(map(str, of_groups)),
        "times": _times(path, frame[time]) if time else None,
        "folds": _folds(path, frame[folds]) if folds else None,
    }, used


def columns_of(path: str, features: DataFrame) -> list[dict[str, Any]]:
    """Return the features of the encoded table, see Samples.columns.

    Raises:
        ValueError: a column holds neither numbers nor categories.
    """
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    columns, unusable = [], {}
    for name, values in features.items():
        if is_numeric_dtype(values) and not is_bool_dtype(values) and values.dtype.kind != "m":
            columns.append({"name": str(name), "category": None})
            continue
        present = values.dropna()
        if not all(isinstance(value, str | bool | np.bool) for value in present):
            unusable[name] = f"holds {present.iloc[0]!r:.{LONGEST}}, for instance"
            continue
        categories = sorted(present.astype(str).unique())
        if len(categories) > max(FEW_CATEGORIES, min(MOST_CATEGORIES, len(present) / 2)):
            hint = _table_notes.of_almost_numbers(present)
            unusable[name] = (
                f"has {len(categories):,} different texts in {len(present):,} rows, "
                f"{categories[0]!r:.{LONGEST}} for instance: too many for categories"
                f"{hint and f' ({hint})'}"
            )
        columns += [{"name": str(name), "category": category} for category in categories]
    if unusable:
        found = "; ".join(f"the column {name} {problem}" for name, problem in unusable.items())
        raise ValueError(
            f"{path}: {found}; expected numbers or categories, or `drop: [{', '.join(unusable)}]`"
        )
    return columns


def encoded(
    path: str | Path,
    features: DataFrame,
    columns: list[dict[str, Any]],
    unknown_as_none: bool = False,
    unseen: Collection[int] = (),
) -> np.ndarray:
    """Return the rows of a table as (N, F) float64, with NaN where a number is missing.

    Args:
        features: a table with these columns, and perhaps others.
        columns: what columns_of() returned for this table or an earlier one.
        unknown_as_none: whether an unknown category counts as none of them.
        unseen: positions of columns whose category also counts as unknown.

    Raises:
        ValueError: a column is missing, of another kind than before, or has unknown categories.
    """
    inputs = np.empty((len(features), len(columns)))
    texts = {}
    for position, column in enumerate(columns):
        name = column["name"]
        if name not in features:
            raise ValueError(f"{path}: has no column {name}; found {', '.join(features.columns)}")
        if column["category"] is None:
            inputs[:, position] = numbers(path, features[name])
            continue
        if name not in texts:
            known = {
                entry["category"]
                for place, entry in enumerate(columns)
                if entry["name"] == name and place not in unseen
            }
            texts[name] = _texts(features[name], known)
            if not unknown_as_none:
                _refuse_unknown(path, texts[name], known)
        inputs[:, position] = texts[name] == column["category"]
    return inputs


def _texts(values: Series, known: set[str]) -> Series:
    """Return a column of categories as texts; missing values stay missing."""
    if values.dtype.kind in "iuf":
        names = {0: "False", 1: "True"} if known <= {"False", "True"} else {}

        def text(value: Any) -> str:
            # Whole numbers beside a gap are floats.
            whole = str(int(value)) if value == value // 1 else str(value)
            return names.get(value, str(float(value)) if str(float(value)) in known else whole)

        return values.map(text, na_action="ignore").astype(object)
    return values.map(str, na_action="ignore").astype(object)


def _refuse_unknown(path: str | Path, texts: Series, known: set[str]) -> None:
    unknown = texts[texts.notna() & ~texts.isin(known)]
    if len(unknown):
        shown = sorted(set(unknown))
        more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
        raise ValueError(
            f"{path}: the column {texts.name} holds "
            f"{', '.join(f'{text!r:.{LONGEST}}' for text in shown[:SHOWN])}{more}, "
            f"in {len(unknown)} of {len(texts)} rows; known: {', '.join(map(repr, sorted(known)))}"
        )


def _times(path: str, values: Series) -> np.ndarray:
    """Return a column of numbers or dates as numbers."""
    import pandas as pd

    try:
        is_number = values.dtype.kind in "iuf"
        if is_number and not np.isfinite(values).all():
            raise ValueError("a number is infinite")
        times = values if is_number else pd.to_datetime(values, utc=True, format="ISO8601")
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: the column {values.name} holds neither numbers nor dates like 2026-01-31 "
            f"({str(error).partition('. You')[0]})"
        ) from None
    return times.to_numpy()


def _classes(path: str, values: Series) -> tuple[np.ndarray, Index]:
    """Return (the class number of each row, the classes)."""
    import pandas as pd

    others = [one for one in values.unique() if not _is_class(one)] if values.dtype == "O" else []
    if others:
        raise ValueError(
            f"{path}: the column {values.name} holds a {type(others[0]).__name__}; expected texts, "
            "numbers or truth values"
        )
    try:
        numbers, classes = pd.factorize(values, sort=True)
    except TypeError as error:
        raise ValueError(f"{path}: the column {values.name} holds no classes ({error})") from None
    return numbers, pd.Index(classes)


def _is_class(value: Any) -> bool:
    return isinstance(value, str | bool | int | float | np.number | np.bool)


def folds_of(values: Series) -> np.ndarray:
    """Return the fold that each value names, from 0 in the order of the values.

    Missing values, words for them and negative numbers name none: -1.
    """
    import pandas as pd

    is_given = values.notna() & ~values.isin(["", *_table_files.NA_WORDS])
    present = values[is_given]
    try:
        present = pd.to_numeric(present)
        is_given[is_given] = is_held_out = (present >= 0).to_numpy(bool)
        present = present[is_held_out]
    except (ValueError, TypeError):  # texts
        present = present.astype(str)
    fold_of = np.full(len(values), -1)
    fold_of[is_given.to_numpy(bool)] = pd.factorize(present, sort=True)[0]
    return fold_of


def _folds(path: str, values: Series) -> np.ndarray:
    fold_of = folds_of(values)
    if fold_of.max() < 1:
        number = fold_of.max() + 1
        raise ValueError(f"{path}: the column {values.name} has {number} folds; expected two")
    return fold_of


def numbers(path: str | Path, values: Series) -> np.ndarray:
    """Return a column as float64; missing values are NaN."""
    import pandas as pd

    try:
        if values.dtype.kind in "mM":
            raise ValueError(f"it is {values.dtype}")
        floats = pd.to_numeric(values).to_numpy(np.float64, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: the column {values.name} holds no numbers ({error})") from None
    too_large = np.abs(floats) > LARGEST
    if too_large.any():
        found = floats[too_large][0]
        raise ValueError(
            f"{path}: the column {values.name} holds {found} in row {np.flatnonzero(too_large)[0]} "
            f"(counted from 0), which is too large; if it is a missing value, list it under "
            "`missing_values`"
        )
    return floats


def _exact(path: str | Path, values: Series) -> np.ndarray:
    """Return a column of numbers; integers stay integers, because float64 might round them."""
    is_whole = values.dtype.kind in "iu" and isinstance(values.dtype, np.dtype)
    return values.to_numpy() if is_whole else numbers(path, values)


def _targets_named(path: str, target: Any, task: str) -> list[str]:
    """Return the names of the columns to predict."""
    if isinstance(target, list):
        names, fits = target, len({*map(str, target)}) == len(target) > 1
        fits = fits and task != "classification"
    else:
        names, fits = [target], task != "multilabel"
    if not fits:
        raise ValueError(
            f"{path}: found target {target}; expected a column, or, for `task: regression` or "
            "`multilabel`, a list of several different ones"
        )
    return names


def _target(path: str, values: Series, task: str) -> np.ndarray:
    """Return a column of numbers, or of zeros and ones, that can be predicted."""
    numbers = _exact(path, values)
    try:
        tasks.named(task, 1).checked(numbers if task == "regression" else numbers[:, None])
    except ValueError as error:
        raise ValueError(f"{path}: the column {values.name} cannot be predicted: {error}") from None
    return numbers


def refuse_missing(path: str | Path, frame: DataFrame, remedy: str) -> None:
    """Raise a ValueError that lists the columns with missing values and their first row."""
    gaps = [(name, np.flatnonzero(values.isna())) for name, values in frame.items()]
    listed = [f"{name} in {len(rows)}, first in row {rows[0]}" for name, rows in gaps if len(rows)]
    if listed:
        raise ValueError(
            f"{path}: some of {len(frame)} rows (counted from 0) have missing values: "
            f"{'; '.join(listed)}; {remedy}"
        )
