"""Read a CSV or Parquet file as a pandas.DataFrame, and refuse what cannot be meant."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

READERS = {".csv": "read_csv", ".parquet": "read_parquet"}
# What pandas reads as missing. In a column of words these are words, unless `missing_values`
# lists them.
NA_WORDS = (
    *("NA", "N/A", "n/a", "NaN", "nan", "-NaN", "-nan", "null", "NULL", "None", "<NA>"),
    *("#N/A", "#NA", "#N/A N/A", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
SEPARATORS = ";\t|"
RATHER = {
    ";": "pandas.read_csv(FILE, sep=';', decimal=',')",  # which such files usually have
    "\t": "pandas.read_csv(FILE, sep='\\t')",
    "|": "pandas.read_csv(FILE, sep='|')",
}
HEADERLESS = "set `header: false`, which calls the columns 0, 1, ..."


def read(
    path: str | Path,
    texts: Iterable[str] = (),
    verbatim: Iterable[str] = (),
    as_written: Iterable[str] = (),
    missing_values: Iterable[Any] = (),
    header: bool = True,
) -> pd.DataFrame:
    """Return the pandas.DataFrame in a file; the names of its columns are texts.

    An empty cell is missing. A word that stands for a missing value, such as NA, is missing in a
    column of numbers; in a column of words it is a word.

    Args:
        texts: columns of a CSV that are read as texts, so that 02 stays 02.
        verbatim: columns that are read as texts and in which an empty text is a text.
        as_written: columns that are read as texts if they have a word that stands for a missing
            value.
        missing_values: further values that are missing: numbers or texts.
        header: whether the first row of a CSV has the names.

    Raises:
        ValueError: there is no such file, it is not CSV or Parquet, or two columns have the same
            name.
    """
    import pandas as pd

    suffix = Path(path).suffix
    if suffix not in READERS or not Path(path).is_file():
        raise ValueError(f"{path}: expected a file that ends with {' or '.join(READERS)}")
    if suffix == ".csv":
        _refuse_encoding(path)
        _refuse_separators(path)
    try:
        if suffix == ".csv":
            frame = _of_csv(path, {*texts}, {*verbatim}, {*as_written}, missing_values, header)
        else:
            frame = of_frame(pd.read_parquet(path), missing_values)
    except Exception as error:  # whatever pandas and pyarrow raise for a damaged file
        raise ValueError(f"{path}: cannot be read as {suffix[1:]} ({error})") from None
    if suffix == ".csv" and header:
        _check_header(path)
    return frame


def of_frame(frame: pd.DataFrame, missing_values: Iterable[Any] = ()) -> pd.DataFrame:
    """Return a table as read() returns one, whatever its types, names and index are."""
    import pandas as pd

    frame = frame.rename(columns=str)
    for name in frame.columns[frame.dtypes == "category"]:
        frame[name] = frame[name].astype(object).infer_objects()
    for name in frame.columns[frame.dtypes == "object"]:
        if pd.api.types.infer_dtype(frame[name], skipna=True) == "decimal":
            frame[name] = pd.to_numeric(frame[name])
    if missing_values:
        frame = frame.mask(frame.isin([*missing_values]))
    return frame.reset_index(drop=True)  # an index is left by filtering rows, or names them


def _of_csv(
    path: str | Path,
    texts: set[str],
    verbatim: set[str],
    as_written: set[str],
    missing_values: Iterable[Any],
    header: bool,
) -> pd.DataFrame:
    import pandas as pd

    # Whole columns at once: pandas would infer the type of each part separately.
    options = {"low_memory": False, "header": 0 if header else None}
    given = [str(value) for value in missing_values]

    def parsed(**further: Any) -> pd.DataFrame:
        typed = {"dtype": dict.fromkeys(texts, str), "na_values": given}
        return pd.read_csv(path, **options, **typed, **further).rename(columns=str)

    frame, further = parsed(), {}
    if header and _has_names(path):
        frame.index = frame.index.astype(str)  # 0, 1, ... would not look like names
    if has_names(frame) and len(frame.columns) and frame.iloc[:, -1].isna().all():
        further = {"index_col": False}  # each line ends with an additional, empty field
        frame = parsed(**further)
    # Words, and what may be words, are kept as they are written.
    words = {name for name, values in frame.items() if _has_words(values)} | (texts & {*frame})
    doubtful = {name for name in as_written & {*frame} - words if frame[name].isna().any()}
    verbatim = verbatim & {*frame}
    if words or doubtful or verbatim:
        written = pd.read_csv(path, **options, **further, dtype=str, keep_default_na=False)
        written = written.rename(columns=str)
        for name in doubtful:
            if written[name].isin(NA_WORDS).any():
                words.add(name)
        for name in words | verbatim:
            column = written[name].to_numpy(object)
            if name not in verbatim:
                column[np.isin(column, ["", *given])] = None
            frame[name] = pd.array(column, "str")
    return frame


def _has_words(values: pd.Series) -> bool:
    return values.dtype.kind not in "iufb" and any(isinstance(value, str) for value in values)


def has_names(frame: pd.DataFrame) -> bool:
    """Return whether the rows of a table have names, as read() returns it."""
    import pandas as pd

    return not isinstance(frame.index, pd.RangeIndex)


def _has_names(path: str | Path) -> bool:
    """Return whether the rows of a CSV have one field more than its header: pandas' index."""
    return len(_first_row(path)) + 1 == len(_first_row(path, 1))


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
    names = _first_row(path)
    if len(names) == 1 and (found := [sign for sign in SEPARATORS if sign in names[0]]):
        separator = max(found, key=names[0].count)
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


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
