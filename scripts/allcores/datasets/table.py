"""Your own table, a CSV or Parquet file: one column is the target, the others are features.

Numbers are scaled by mean and standard deviation, texts and truth values become an indicator per
category; both by what the training part of each fold says. Missing values are an error, unless
`missing: mean` puts the training part's mean (for a text: no category) in their place.
"""

import re
from pathlib import Path

import numpy as np

from allcores.data.storage import Metadata, Samples, blurred

ALLOWED = {"task": ("classification", "regression"), "missing": ("error", "mean")}
READERS = {".csv": "read_csv", ".parquet": "read_parquet"}
# Bytes of a file that is not read before it is its turn.
LARGE = 1 << 25
# A column of texts with more categories than that, or than half its rows, if those are not few,
# holds names or dates.
MOST_CATEGORIES, FEW_CATEGORIES = 1000, 20


def metadata(path, target, task="classification", drop=(), groups=None, time=None, missing="error"):
    """None: the file is large, and is read when it is its turn.

    Raises:
        ValueError, OSError: see load().
    """
    if Path(path).stat().st_size > LARGE:
        return None
    options = {"path": path, "target": target, "task": task, "drop": drop}
    made = load(None, **options, groups=groups, time=time, missing=missing)
    return Metadata(
        train=made.train,
        test=0,
        smallest_class=None if made.classes is None else int(np.bincount(made.targets).min()),
        shape=made.shape[1:],
        classes=made.classes and len(made.classes),
        groups=None if made.groups is None else len(np.unique(made.groups)),
        times=None if made.times is None else len(np.unique(made.times)),
    )


def load(
    folder,
    *,
    path,
    target,
    task="classification",
    drop=(),
    groups=None,
    time=None,
    missing="error",
):
    """The table in the file at path.

    Args:
        target: the column that is predicted.
        drop: columns that are no features.
        groups: a column, no feature either; rows with the same value are held out together.
        time: a column of numbers or dates, no feature either; rows that are held out come after
            those that are trained on.

    Raises:
        ValueError: there is no such file or column, or a value cannot be used.
    """
    import pandas as pd

    frame = read(path)
    if groups and time:
        raise ValueError(f"{path}: found groups and time; expected one of them")
    splits_by = [column for column in (groups, time) if column]
    for column in (target, *drop, *splits_by):
        if not isinstance(column, str):
            raise ValueError(f"{path}: found the column {column!r}; expected a name, in quotes")
        if column not in frame:
            raise ValueError(
                f"{path}: has no column {column}; found {', '.join(map(str, frame.columns))}"
            )
    features = frame.drop(columns=list({target, *drop, *splits_by}))
    _refuse_unnamed(path, features)
    if frame.empty or features.columns.empty:
        raise ValueError(f"{path}: has {len(frame)} rows and {len(features.columns)} features")
    refuse_missing(path, frame[[target, *splits_by]], "cannot be left out")
    if missing == "error":
        refuse_missing(path, features, "`missing: mean` would put the mean there")
    columns = columns_of(path, features)
    inputs = encoded(path, features, columns)
    _refuse_blurred(path, features, columns)
    if task == "regression":
        targets, classes = numbers(path, frame[target]), None
    else:
        targets, classes = _classes(path, frame[target])
        if len(classes) < 2:
            raise ValueError(f"{path}: the column {target} has a single value, {classes[0]}")
    return Samples(
        shape=inputs.shape,
        chunks=[inputs],
        targets=targets,
        classes=classes,
        train=len(frame),
        groups=pd.factorize(frame[groups])[0] if groups else None,
        times=_times(path, frame[time]) if time else None,
        columns=columns,
        dtype=np.float32,
    )


def read(path, texts=()):
    """The pandas.DataFrame in a file.

    Args:
        texts: columns of a CSV that stay as they are written, as 02 does.

    Raises:
        ValueError: there is none, or it is neither CSV nor Parquet, or two columns have one name.
    """
    import pandas as pd

    reader = READERS.get(Path(path).suffix)
    if reader is None or not Path(path).is_file():
        raise ValueError(f"{path}: expected a file that ends with {' or '.join(READERS)}")
    options, header = {}, []
    try:
        if reader == "read_csv":
            # All of a column at once: pandas would decide anew of each part what it holds.
            options = {"low_memory": False, "dtype": dict.fromkeys(texts, str)}
            header = pd.read_csv(path, header=None, nrows=1, dtype=str).loc[0].dropna()
        frame = getattr(pd, reader)(path, **options).rename(columns=str)
    except Exception as error:  # whatever pandas and pyarrow say of a damaged file
        raise ValueError(f"{path}: cannot be read as {Path(path).suffix[1:]} ({error})") from None
    if len(header) and header.duplicated().any():
        raise ValueError(f"{path}: has the column {header[header.duplicated()].iloc[0]} twice")
    return frame


def columns_of(path, features):
    """What each feature of the encoded table is: see Samples.columns.

    Raises:
        ValueError: a column holds neither numbers nor categories.
    """
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    columns = []
    for name, values in features.items():
        if is_numeric_dtype(values) and not is_bool_dtype(values) and values.dtype.kind != "m":
            columns.append({"name": str(name), "category": None})
            continue
        told = values.dropna()
        if not told.map(lambda value: isinstance(value, str | bool | np.bool)).all():
            raise ValueError(
                f"{path}: the column {name} holds {told.iloc[0]!r}, for instance; expected numbers "
                "or texts, or `drop`"
            )
        categories = sorted(told.astype(str).unique())
        if len(categories) > max(FEW_CATEGORIES, min(MOST_CATEGORIES, len(told) / 2)):
            raise ValueError(
                f"{path}: the column {name} has {len(categories):,} different texts in "
                f"{len(told):,} rows, {categories[0]!r} for instance, which are no categories; "
                "expected fewer, or `drop`"
            )
        columns += [{"name": str(name), "category": category} for category in categories]
    return columns


def encoded(path, features, columns):
    """The rows of a table as (N, F) float32, NaN where a number is missing.

    Args:
        features: pandas.DataFrame with those columns, and perhaps others.
        columns: from columns_of() of this table or an earlier one; a category that is not among
            them has no indicator.

    Raises:
        ValueError: a column is missing, or not of the kind that it was.
    """
    inputs = np.empty((len(features), len(columns)), np.float32)
    texts = {}
    for position, column in enumerate(columns):
        name = column["name"]
        if name not in features:
            raise ValueError(f"{path}: has no column {name}; found {', '.join(features.columns)}")
        if column["category"] is None:
            inputs[:, position] = numbers(path, features[name])
            continue
        if name not in texts:
            known = {each["category"] for each in columns if each["name"] == name}
            texts[name] = _texts(path, features[name], known)
        inputs[:, position] = texts[name] == column["category"]
    return inputs


def _texts(path, values, known):
    """A column of categories as texts; what is missing stays so.

    Raises:
        ValueError: none of them is known.
    """
    if known <= {"False", "True"} and values.dtype.kind in "iuf":
        values = values.map({0: "False", 1: "True"})
    texts = values.astype(str).where(values.notna())
    told = set(texts.dropna())
    if told and not told & known:
        raise ValueError(
            f"{path}: the column {values.name} holds {min(told)!r}, for instance, and none of "
            f"the known ones: {', '.join(sorted(known))}"
        )
    return texts


def _times(path, values):
    """A column of numbers or dates as numbers."""
    import pandas as pd

    try:
        is_number = values.dtype.kind in "iuf"
        if is_number and not np.isfinite(values).all():
            raise ValueError("a number is infinite")
        found = values if is_number else pd.to_datetime(values, utc=True, format="ISO8601")
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: the column {values.name} holds neither numbers nor dates like 2026-01-31 "
            f"({error})"
        ) from None
    return found.to_numpy()


def _classes(path, values):
    """(the number of the class of each row, the classes' names)."""
    import pandas as pd

    try:
        numbers, names = pd.factorize(values, sort=True)
    except TypeError as error:
        raise ValueError(f"{path}: the column {values.name} holds no classes ({error})") from None
    return numbers, [str(name) for name in names]


def numbers(path, values):
    """A column as float64; what is missing is NaN."""
    import pandas as pd

    try:
        if values.dtype.kind in "mM":
            raise ValueError(f"it is {values.dtype}")
        found = pd.to_numeric(values).to_numpy(np.float64, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: the column {values.name} holds no numbers ({error})") from None
    beyond = np.abs(found) > np.finfo(np.float32).max
    if beyond.any():
        raise ValueError(
            f"{path}: the column {values.name} holds {found[beyond][0]} in row "
            f"{np.flatnonzero(beyond)[0]}, which float32 cannot"
        )
    return found


def _refuse_unnamed(path, features):
    """pandas writes an index along, and reads it as a column that it calls so."""
    for name in features:
        if Path(path).suffix == ".csv" and re.fullmatch(r"Unnamed: \d+", name):
            raise ValueError(
                f"{path}: a column has no name, as an index that was written along; expected a "
                f'name, or `drop: ["{name}"]`'
            )


def _refuse_blurred(path, features, columns):
    for name in (column["name"] for column in columns if column["category"] is None):
        told = numbers(path, features[name])
        told = told[~np.isnan(told)]
        if len(told) and blurred(told):
            raise ValueError(
                f"{path}: the column {name} holds numbers from {told.min():.12g} to "
                f"{told.max():.12g}, which float32 can hardly tell apart; expected them less what "
                "they have in common, or `drop`"
            )


def refuse_missing(path, frame, remedy):
    """Raise a ValueError that names a missing value's column and row."""
    for name, values in frame.items():
        gone = np.flatnonzero(values.isna())
        if len(gone):
            raise ValueError(
                f"{path}: the column {name} has no value in row {gone[0]} (from 0) and "
                f"{len(gone) - 1} others; {remedy}"
            )
