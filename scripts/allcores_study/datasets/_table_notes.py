"""Sentences on what may be unintended in a table, for plans, logs and reports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from allcores_study.datasets import _table_files

if TYPE_CHECKING:
    import pandas as pd

# A column of texts of which a larger share looks like numbers was perhaps meant to be numbers.
MOSTLY = 0.5
SHOWN = 4  # values in a sentence
# A column of numbers has so many different ones, and a code repeats so often, to be noted.
DIFFERENT, REPEATED = 10, 3
# What texts of numbers may be, besides numbers: name -> pattern of the whole text.
DRESSED = {
    "numbers with a decimal comma (pandas.read_csv(FILE, decimal=',') reads them)": r"[-+]?"
    r"(0,\d+|\d+,(\d{1,2}|\d{4,}))",
    "dates": r"\d{4}-\d{1,2}-\d{1,2}.*|\d{1,2}[./]\d{1,2}[./]\d{2,4}.*",
    "numbers with a unit or a sign": r"[$€£]?\s*[-+]?\d[\d,]*(\.\d+)?"
    r"(\s*[%€$£°]|\s+\S{1,6}|(?!st|nd|rd|th)[a-zµ]{1,3})?",
    "numbers with another minus": r"[\u2010-\u2015\u2212]\s*\d[\d.,]*",
    "times of day or durations": r"\d+:[0-5]\d(:[0-5]\d([.,]\d+)?)?",
}
# Names of columns that identify a row: id, ID, Id, patient_id, patientId, but not Madrid.
IDENTIFIER = r"^id$|(_id|Id|(?<![A-Z])ID)$"
# The note on a table whose rows have names.
NAMED = "its rows have one field more than its header; the first was taken for their name"


def of(
    frame: pd.DataFrame, features: pd.DataFrame, names: list[str], codes: dict[str, pd.Series]
) -> list[str]:
    """The notes on a table, each in a line.

    Args:
        frame: pandas.DataFrame.
        features: those of its columns that are features.
        names: other columns whose values are names: of classes, of groups.
        codes: columns of whole numbers -> their texts, as they stand in the file.
    """
    return [" ".join(note.splitlines()) for note in _of(frame, features, names, codes)]


def _of(
    frame: pd.DataFrame, features: pd.DataFrame, names: list[str], codes: dict[str, pd.Series]
) -> Iterator[str]:
    from pandas.api.types import is_string_dtype

    if _table_files.has_names(frame):
        yield NAMED
    for name, values in features.items():
        present = values.dropna()
        if values.nunique(dropna=False) == 1:
            yield f"the column {name} has a single value, {values.iloc[0]}: it tells nothing"
        if is_string_dtype(present):
            hint = of_almost_numbers(present)
            if hint:
                count = values.nunique()
                yield f"the column {name} counts as {count} categories, not as a number. {hint}"
    texts = {name: frame[name].dropna() for name in (*names, *features)}
    for name, values in texts.items():
        if is_string_dtype(values):
            yield from _alike(name, values)
            yield from _words_for_missing(name, values)
    for name in names:
        yield from _fractions(name, frame[name])
    for name, values in codes.items():
        yield from _codes(name, values)
    yield from _repeated_extremes(features)
    for name, values in features.items():
        yield from _row_numbers(name, values)


def of_almost_numbers(texts: pd.Series) -> str:
    """Why a column of texts is not numbers, if most of it are; "": few are."""
    import pandas as pd

    plain = texts.astype(str).str.strip()
    is_number = pd.to_numeric(plain, errors="coerce").notna()
    if is_number.mean() > MOSTLY:
        other = texts[~is_number]
        if other.empty:
            return f"They are texts that could be numbers: {texts.iloc[0]!r}"
        remedy = ""
        if other.nunique() <= SHOWN:
            words = ", ".join(map(repr, other.unique()))
            remedy = f"; `missing_values: [{words}]` makes them missing"
        shown = _examples(other)
        return f"Of {len(texts):,} values all but {len(other):,} are numbers: {shown}{remedy}"
    for kind, pattern in DRESSED.items():
        is_dressed = is_number | plain.str.fullmatch(pattern)
        if is_dressed.mean() > MOSTLY:
            shown = texts[is_dressed & ~is_number]
            return f"{len(shown):,} of {len(texts):,} values look like {kind}: {_examples(shown)}"
    return ""


def _alike(name: str, values: pd.Series) -> Iterator[str]:
    """Yield a note if values differ only in case or blanks, so that one may be written as two."""
    counts = values.astype(str).value_counts()
    forms: dict[str, list[str]] = {}
    for text in sorted(counts.index):
        forms.setdefault(" ".join(text.casefold().split()), []).append(text)
    alike = [texts for texts in forms.values() if len(texts) > 1]
    if alike:
        shown = ", ".join(f"{text!r} ({counts[text]:,})" for text in alike[0][:SHOWN])
        more = f"; so do {len(alike) - 1} more" if len(alike) > 1 else ""
        yield f"the column {name} has values that differ only in case or blanks: {shown}{more}"


def _codes(name: str, texts: pd.Series) -> Iterator[str]:
    """Yield a note if numbers were written with zeros before them, as codes are."""
    written = texts.str.strip()
    is_code = np.array([bool(re.fullmatch("[-+]?0[0-9]+", text)) for text in written], bool)
    if is_code.any():
        shortest = written.str.replace(r"^\+?(-?)0*(?=\d)", r"\1", regex=True)
        merged = shortest[is_code].isin(shortest[~is_code]).sum()
        also = f"; {merged:,} count as the same as those without" if merged else ""
        yield (
            f"the column {name} was read as numbers, but {is_code.sum():,} values begin with 0 as "
            f"codes do: {_examples(written[is_code])}{also}"
        )


def _words_for_missing(name: str, values: pd.Series) -> Iterator[str]:
    """Yield a note on words that often stand for missing values, and count as words here."""
    for word, count in values[values.isin(_table_files.NA_WORDS)].value_counts().items():
        yield (
            f"the column {name} has the word {word!r} in {count:,} rows, which counts like any "
            f"other; `missing_values: [{word!r}]` makes it missing"
        )


def _repeated_extremes(features: pd.DataFrame) -> Iterator[str]:
    """Yield a note if numbers that are far from the rest repeat, as codes for missing ones do."""
    found: dict[float, list[str]] = {}
    for name, values in features.items():
        if values.dtype.kind in "iuf" and (code := _repeated_extreme(values.dropna().to_numpy())):
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
    """The least or largest number if it repeats, and is farther from the others than they are from
    each other, or the only negative one; None: neither is so."""
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


def _fractions(name: str, values: pd.Series) -> Iterator[str]:
    """Yield a note on classes or groups that are numbers with fractions, as measurements are."""
    if values.dtype.kind == "f" and (values % 1).any():
        example = values[values % 1 != 0].iloc[0]
        yield (
            f"the column {name} has numbers with fractions, {example} for instance, and each "
            f"of {values.nunique():,} different ones is a name: `task: regression` predicts numbers"
        )


def _row_numbers(name: str, values: pd.Series) -> Iterator[str]:
    """Yield a note on whole numbers that count the rows, differ in each, or are called an id."""
    if values.dtype.kind not in "iu" or len(values) < DIFFERENT:
        return
    different = values.nunique()
    if different == len(values):
        counts = (np.diff(values.to_numpy()) == 1).all()
        how = "counts the rows" if counts else "is different in every row"
    elif re.search(IDENTIFIER, str(name)) and different > len(values) / 2:
        how = f"has {different:,} different numbers in {len(values):,} rows"
    else:
        return
    yield f"the column {name} {how}: if it is no feature, write `drop: [{name}]`"


def _examples(values: pd.Series) -> str:
    return ", ".join(repr(value) for value in values.astype(str).unique()[:SHOWN])
