"""Read a CSV or Parquet file as a pandas.DataFrame, and refuse what cannot be meant."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.data import class_values

if TYPE_CHECKING:
    import pandas as pd

# Key of a Parquet file's metadata: column -> class_values.described() of its categories.
CATEGORIES = b"allcores_categories"
READERS = {".csv": "read_csv", ".parquet": "read_parquet"}
# What pandas reads as missing. In a column of words these are words, unless `missing_values`
# lists them.
NA_WORDS = (
    *("NA", "N/A", "n/a", "NaN", "nan", "-NaN", "-nan", "null", "NULL", "None", "<NA>"),
    *("#N/A", "#NA", "#N/A N/A", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
TRUTH = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
SEPARATORS = ";\t|"
RATHER = {
    ";": "pandas.read_csv(FILE, sep=';', decimal=',')",  # which such files usually have
    "\t": "pandas.read_csv(FILE, sep='\\t')",
    "|": "pandas.read_csv(FILE, sep='|')",
}
HEADERLESS = "set `header: false`, which calls the columns 0, 1, ..."


@dataclass(frozen=True)
class Table:
    """What a file holds.

    Attributes:
        frame: the table; the names of its columns are texts, and its rows are numbered.
        texts: its cells as they are written; None: it is no CSV.
        has_row_names: whether its first column had no name, and was left out.
        is_longer: whether that was so because its rows have a field more than the header.
    """

    frame: pd.DataFrame
    texts: pd.DataFrame | None = None
    has_row_names: bool = False
    is_longer: bool = False


def read(
    path: str | Path,
    texts: Iterable[str] = (),
    verbatim: Iterable[str] = (),
    named: Iterable[str] = (),
    missing_values: Iterable[Any] = (),
    header: bool = True,
) -> Table:
    """Return the Table in a file.

    An empty cell is missing. A word that stands for a missing value, such as NA, is missing in a
    column of numbers; in a column of words it is a word.

    Args:
        texts: columns of a CSV that are read as texts, so that 02 stays 02.
        verbatim: columns that are read as texts and in which an empty text is a text.
        named: columns of names, which are texts if they have a word that stands for a missing
            value.
        missing_values: further values that are missing: numbers or texts.
        header: whether the first row of a CSV has the names.

    Raises:
        ValueError: there is no such file, it is not CSV or Parquet, or two columns have the same
            name.
    """

    suffix = Path(path).suffix.lower()
    if suffix not in READERS or not Path(path).is_file():
        raise ValueError(f"{path}: expected a file that ends with {' or '.join(READERS)}")
    if suffix == ".csv":
        _refuse_encoding(path)
        _refuse_separators(path)
    try:
        if suffix == ".parquet":
            return Table(of_frame(_of_parquet(path), missing_values, verbatim))
        cells, has_row_names, is_longer = _cells(path, header)
        missing, numbers = {"", *map(str, missing_values)}, numbers_in(missing_values)
        frame = cells.copy()
        for name in cells.columns.difference([*verbatim], sort=False):
            column = cells[name]
            is_text = name in texts or (name in named and column.isin(NA_WORDS).any())
            found = None if is_text else _typed(column, missing)
            if found is not None and name in named and _merges(column, found):
                found = None
            if found is not None and numbers and found.dtype.kind in "iuf":
                found = found.mask(found.isin(numbers))  # however they are written
            frame[name] = column.where(~column.isin(missing)) if found is None else found
    except Exception as error:  # whatever pandas and pyarrow raise for a damaged file
        raise ValueError(f"{path}: cannot be read as {suffix[1:]} ({error})") from None
    if header:
        _check_header(path)
    return Table(frame, cells, has_row_names, is_longer)


def _of_parquet(path: str | Path) -> pd.DataFrame:
    """Return the table in a Parquet file, with categories of numbers as they were written."""
    import pandas as pd
    import pyarrow.parquet as pq

    frame, schema = pd.read_parquet(path), pq.read_schema(path)
    for name, described in json.loads((schema.metadata or {}).get(CATEGORIES, b"{}")).items():
        categories = class_values.restored(described)
        frame[name] = frame[name].cat.rename_categories(categories)
    # Other programs' files; pandas writes the categories, but reads numbers.
    for column in (schema.pandas_metadata or {}).get("columns", ()):
        name = column["name"]
        is_number = name in frame and frame[name].dtype != "category"
        if column["pandas_type"] == "categorical" and is_number:
            ordered = column["metadata"]["ordered"]
            frame[name] = pd.Categorical(frame[name].convert_dtypes(), ordered=ordered)
    return frame


def _cells(path: str | Path, header: bool) -> tuple[pd.DataFrame, bool, bool]:
    """Return the fields of Table of a CSV after `frame`.

    Columns have no name if R or pandas wrote the names of rows: as a field more than the header
    has, or below empty names. A comma at the end of each line makes no column.
    """
    import pandas as pd

    names, first = _first_row(path), _first_row(path, 1)
    extra = first[len(names) :] if header else []
    if any(extra) and len(extra) > 1:
        raise ValueError(f"its header has {len(names)} fields, the next row {len(first)}")
    is_longer = any(extra)
    options: dict[str, Any] = {"header": 0} if header else {"header": None}
    if extra and not is_longer:
        options["names"] = [*names, *range(len(extra))]
    cells = pd.read_csv(path, dtype=str, keep_default_na=False, **options).rename(columns=str)
    if "names" in options:
        if (cells.iloc[:, len(names) :].fillna("") != "").any(axis=None):
            raise ValueError(
                f"its header has {len(names)} fields, a later row {len(cells.columns)}"
            )
        cells = cells.iloc[:, : len(names)]
    named = [place for place, name in enumerate(names) if name.strip()]
    nameless = named[0] if header and named else 0  # several, of an index with levels
    cells = cells.iloc[:, nameless:]
    if header and len(names) > 1 and not names[-1].strip() and (cells.iloc[:, -1] == "").all():
        cells = cells.iloc[:, :-1]
    return cells.reset_index(drop=True), nameless > 0 or is_longer, is_longer


def numbers_in(values: Iterable[Any]) -> list[float]:
    """Return those of some values that are numbers, or texts of numbers."""
    return [float(value) for value in values if _is_number(value) and not isinstance(value, bool)]


def _typed(cells: pd.Series, missing: set[str]) -> pd.Series | None:
    """Return a column of texts as numbers or truth values; None: some are neither, nor missing."""
    import pandas as pd

    known = cells[~cells.isin([*missing, *NA_WORDS])]
    if known.isin(TRUTH).all() and len(known):
        return known.map(TRUTH).reindex(cells.index).infer_objects()
    try:
        found = pd.to_numeric(known)
    except (ValueError, TypeError):
        return None
    # Of integers beyond 64 bits, pandas makes objects.
    return (found.astype(float) if found.dtype == "object" else found).reindex(cells.index)


def _merges(cells: pd.Series, found: pd.Series) -> bool:
    """Return whether different texts became one number, as of ids that a float cannot hold."""
    if found.dtype.kind != "f":
        return False
    is_long = found.abs() >= 2**53
    return cells[is_long].nunique() > found[is_long].nunique()


def of_frame(
    frame: pd.DataFrame, missing_values: Iterable[Any] = (), verbatim: Iterable[str] = ()
) -> pd.DataFrame:
    """Return a table as read() returns one, whatever its types, names and index are."""
    import pandas as pd

    frame = frame.rename(columns=str)
    for name in frame.columns[frame.dtypes == "object"]:
        if pd.api.types.infer_dtype(frame[name], skipna=True) == "decimal":
            frame[name] = pd.to_numeric(frame[name])
    if missing_values:
        frame = frame.apply(_without_codes, missing_values=missing_values)
    for name in frame.columns.difference([*verbatim]):
        if pd.api.types.is_string_dtype(frame[name].dropna()):
            frame[name] = frame[name].mask((frame[name] == "").fillna(False).astype(bool))
    return frame.reset_index(drop=True)  # an index is left by filtering rows, or names them


def _without_codes(column: pd.Series, missing_values: Iterable[Any]) -> pd.Series:
    """Return a column in which these values are missing, however they are written."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        values, codes = (
            column.to_numpy(float, na_value=np.nan),
            np.array(numbers_in(missing_values)),
        )
        if pd.api.types.is_float_dtype(column):
            short = values.astype(np.float32)
            if ((short == values) | np.isnan(values)).all():  # a column of float32 rounds the codes
                codes = np.concatenate([codes, codes.astype(np.float32)])
        return column.mask(np.isin(values, codes))
    texts = set(map(str, missing_values))
    return column.mask(column.map(lambda value: str(value) in texts).astype(bool))


def with_texts(features: pd.DataFrame) -> pd.DataFrame:
    """Return features in which categoricals are columns of texts, whatever their categories are."""
    categorical = features.columns[features.dtypes == "category"]
    texts = {name: features[name].map(str, na_action="ignore") for name in categorical}
    return features.assign(**{name: column.astype(object) for name, column in texts.items()})


def _first_row(path: str | Path, skip: int = 0) -> list[str]:
    """Return the fields of a CSV's first row, or a later one, without empty rows; []: none."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a text may be long
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        rows = filter(None, csv.reader(file))
        for _ in range(skip):
            next(rows, None)
        return next(rows, [])


def _refuse_encoding(path: str | Path) -> None:
    """Raise a ValueError unless a CSV is UTF-8; the message shows how to convert it."""
    with Path(path).open("rb") as file:
        begin = file.read(4)
        if begin[:2] == b"\x1f\x8b":
            raise ValueError(f"{path}: is compressed by gzip; expected a CSV, as gunzip makes it")
        encoding = "UTF-16" if begin[:2] in (b"\xff\xfe", b"\xfe\xff") else None
        try:
            file.seek(0)
            for line in () if encoding else file:
                line.decode()
        except UnicodeDecodeError:
            encoding = "latin-1, for instance"
    if encoding:
        name = encoding.partition(",")[0].lower()
        raise ValueError(
            f"{path}: is not UTF-8, but {encoding}; convert it: "
            f"pandas.read_csv(FILE, encoding='{name}').to_csv(FILE, index=False)"
        )


def _refuse_separators(path: str | Path) -> None:
    """Raise a ValueError if the columns of a CSV are not separated by commas."""
    first = ",".join(_first_row(path))
    is_decimal = first.count(",") == len(re.findall(r"\d,(?=\d)", first))  # each comma
    if is_decimal and (found := [sign for sign in SEPARATORS if sign in first]):
        separator = max(found, key=first.count)
        raise ValueError(
            f"{path}: its columns are separated by {separator!r}; expected commas; convert it: "
            f"{RATHER[separator]}.to_csv(FILE, index=False)"
        )


def _check_header(path: str | Path) -> None:
    """Raise a ValueError if names occur twice."""
    stripped = [name.strip() for name in _first_row(path) if name.strip()]
    if twice := sorted({name for name in stripped if stripped.count(name) > 1}):
        raise ValueError(
            f"{path}: has the column {twice[0]} twice; if the file has no names, {HEADERLESS}"
        )


def hint_at_header(frame: pd.DataFrame) -> str:
    """Return the end of a message, if the names of a table may be its first sample, else ""."""
    is_numbered = [*frame.columns] == [str(number) for number in range(len(frame.columns))]
    is_a_sample = not is_numbered and any(map(_is_number, frame.columns))
    return f"; if these are not names, {HEADERLESS}" if is_a_sample else ""


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except (ValueError, TypeError):
        return False
    return True
