"""Sentences on what may be unintended in a table, for plans, logs and reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from allcores_study.datasets import _table_files

if TYPE_CHECKING:
    import pandas as pd

    from allcores_study.datasets._table_files import Table

# If a larger share of a column of texts looks like numbers, it may be meant as numbers.
MOSTLY = 0.5
# A larger share of rows that are copies is worth a note: a few coincide by chance.
MANY_COPIES = 0.02
SHOWN = 4  # values in a sentence
# The least different numbers in a column, and the least repeats of a code, that are worth a note.
DIFFERENT, REPEATED = 10, 3
# Texts that begin with a digit may be meant as numbers or dates.
BEGINS_WITH_A_DIGIT = r"[^\w\s]?\s*\d"
IN_THOUSANDS = r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?"
# Names of columns that identify a row: id, ID, Id, patient_id, patientId, but not Madrid.
IDENTIFIER = r"^id$|(_id|Id|(?<![A-Z])ID)$"
# The note on a table whose rows have names.
NAMED = "its first column has no name, as names of rows have none, and was left out"


def of(
    table: Table,
    features: pd.DataFrame,
    names: list[str],
    answers: pd.DataFrame | None = None,
) -> list[str]:
    """Return the notes on a table, one line each.

    Args:
        features: the columns of the table that are features.
        names: other columns whose values are names or times: of classes, of groups.
        answers: the columns of numbers to predict.
    """
    measured = features if answers is None else features.join(answers)
    notes = [*_of(table, features, names), *_repeated_extremes(measured)]
    return [" ".join(note.splitlines()) for note in notes]


def _of(table: Table, features: pd.DataFrame, names: list[str]) -> Iterator[str]:
    from pandas.api.types import is_string_dtype

    if table.has_row_names:
        yield NAMED
    for name, values in features.items():
        present = values.dropna()
        if values.nunique(dropna=False) == 1:
            yield f"the column {name} has a single value, {values.iloc[0]}: no information"
        if is_string_dtype(present) and table.frame[name].dtype != "category":
            hint = of_almost_numbers(present)
            if hint:
                count = values.nunique()
                yield f"the column {name} counts as {count} categories, not as a number. {hint}"
    texts = {name: table.frame[name].dropna() for name in (*names, *features)}
    texts = {
        name: values.astype(values.cat.categories.dtype) if values.dtype == "category" else values
        for name, values in texts.items()
    }
    for name, values in texts.items():
        if is_string_dtype(values):
            yield from _alike(name, values)
            yield from _words_for_missing(name, values)
        elif table.texts is not None and values.dtype.kind in "iuf":
            yield from _codes(name, table.texts[name][values.index])
    for name, values in features.items():
        yield from _row_numbers(name, values)


def of_copies(
    features: pd.DataFrame, targets: np.ndarray, group_of: np.ndarray | None
) -> list[str]:
    """Return a note if many rows are copies of others that folds do not keep together.

    Args:
        targets: (n,) or (n, T).
        group_of: the group of each row, (n,); None: rows are held out one by one.
    """
    import pandas as pd

    if len(features.columns) < 2:  # equal values in a single column say nothing
        return []
    answers = pd.DataFrame(targets).add_prefix("\n")  # no column has such a name
    rows = pd.concat([features, answers], axis=1)
    if group_of is not None:  # copies in one group are held out together
        rows = rows[~rows.assign(**{"\n": group_of}).duplicated()]
    copies = int(rows.duplicated().sum())
    if copies <= MANY_COPIES * len(rows):
        return []
    return [
        f"{copies:,} of {len(rows):,} rows are copies of others, so that test folds have rows that "
        "were trained on: remove them, or give copies the same value in a column for `groups`"
    ]


def of_almost_numbers(texts: pd.Series) -> str:
    """Return why a column of texts is not numbers, if most of it are; "": few are."""
    import pandas as pd

    plain = texts.astype(str).str.strip()
    is_number = pd.to_numeric(plain, errors="coerce").notna()
    others = texts[~is_number]
    if len(others) and plain[~is_number].str.fullmatch(IN_THOUSANDS).all():
        return f"pandas.read_csv(FILE, thousands=',') reads numbers like {_examples(others)}"
    if is_number.mean() > MOSTLY:
        if others.empty:
            return f"They are texts that could be numbers: {texts.iloc[0]!r}"
        remedy = ""
        if others.nunique() <= SHOWN:
            words = ", ".join(map(repr, others.unique()))
            remedy = f"; `missing_values: [{words}]` makes them missing"
        shown = _examples(others)
        return f"{len(others):,} of {len(texts):,} values are not numbers: {shown}{remedy}"
    begins = is_number | plain.str.match(BEGINS_WITH_A_DIGIT)
    if begins.mean() > MOSTLY:
        return (
            f"{begins.sum():,} of {len(texts):,} values begin with a digit: "
            f"{_examples(texts[begins])}; numbers have a decimal point and no unit "
            "(pandas.read_csv(FILE, decimal=',') reads decimal commas)"
        )
    return ""


def _alike(name: str, values: pd.Series) -> Iterator[str]:
    """Yield a note if values differ only in case or blanks: one may be written in two ways."""
    counts = values.astype(str).value_counts()
    forms: dict[str, list[str]] = {}
    for text in sorted(counts.index):
        forms.setdefault(" ".join(text.casefold().split()), []).append(text)
    alike = [texts for texts in forms.values() if len(texts) > 1]
    if alike:
        shown = ", ".join(f"{text!r} ({counts[text]:,})" for text in alike[0][:SHOWN])
        more = f", and {len(alike) - 1} more such groups" if len(alike) > 1 else ""
        yield f"the column {name} has values that differ only in case or blanks: {shown}{more}"


def _codes(name: str, texts: pd.Series) -> Iterator[str]:
    """Yield a note if numbers were written with leading zeros, as codes are."""
    written = texts.str.strip()
    is_code = np.array([bool(re.fullmatch("[-+]?0[0-9]+", text)) for text in written], bool)
    if is_code.any():
        shortest = written.str.replace(r"^\+?(-?)0*(?=\d)", r"\1", regex=True)
        merged = shortest[is_code].isin(shortest[~is_code]).sum()
        also = f"; {merged:,} now equal a value without the zeros" if merged else ""
        yield (
            f"the column {name} was read as numbers, but {is_code.sum():,} values begin with 0 as "
            f"codes do: {_examples(written[is_code])}{also}"
        )


def _words_for_missing(name: str, values: pd.Series) -> Iterator[str]:
    """Yield a note on words that often stand for missing values but count as words here."""
    for word, count in values[values.isin(_table_files.NA_WORDS)].value_counts().items():
        yield (
            f"the column {name} has the word {word!r} in {count:,} rows, which counts like any "
            f"other; `missing_values: [{word!r}]` makes it missing"
        )


def _repeated_extremes(features: pd.DataFrame) -> Iterator[str]:
    """Yield a note if numbers far from the rest repeat, as codes for missing values do."""
    found: dict[float, list[str]] = {}
    for name, values in features.items():
        if values.dtype.kind not in "iuf":
            continue
        code = _repeated_extreme(values.dropna().to_numpy(float))
        if code is not None:
            found.setdefault(code, []).append(str(name))
    for code, names in found.items():
        shown = ", ".join(names[:SHOWN]) + (
            f" and {len(names) - SHOWN} more" * (len(names) > SHOWN)
        )
        yield (
            f"{code:g} repeats far from all other numbers in {shown}: if it stands for a missing "
            f"value, list it under `missing_values`"
        )


def _repeated_extreme(values: np.ndarray) -> float | None:
    """Return the least or largest number if it may be a code for missing values, else None.

    It has to repeat, and to be farther from the others than they are from each other, or the only
    negative number.
    """
    numbers, counts = np.unique(values, return_counts=True)
    if len(numbers) < DIFFERENT:
        return None
    for code, count, others in (
        (numbers[0], counts[0], numbers[1:]),
        (numbers[-1], counts[-1], numbers[:-1]),
    ):
        gap = np.abs(others - code).min()
        is_far = gap > others[-1] - others[0]
        is_odd = code <= -9 and others[0] >= 0 and code == np.round(code)
        if count >= REPEATED and (is_far or is_odd):
            return float(code)
    return None


def _row_numbers(name: str, values: pd.Series) -> Iterator[str]:
    """Yield a note on whole numbers that count the rows, differ in each, or are called an id."""
    if values.dtype.kind not in "iuf":
        return
    values = values.dropna()
    # Beside a gap, whole numbers are floats.
    is_whole = values.dtype.kind in "iu" or (values.astype(float) % 1 == 0).all()
    if len(values) < DIFFERENT or not is_whole:
        return
    different = values.nunique()
    if different == len(values):
        counts = (np.diff(values.to_numpy()) == 1).all()
        how = "counts the rows" if counts else "is different in every row"
    elif re.search(IDENTIFIER, str(name)) and different > len(values) / 2:
        how = f"has {different:,} different numbers in {len(values):,} rows"
    else:
        return
    yield f"the column {name} {how}; if it is not a feature, set `drop: [{name}]`"


def _examples(values: pd.Series) -> str:
    return ", ".join(f"{value!r:.60}" for value in values.astype(str).unique()[:SHOWN])
