"""Your own texts, a column of a CSV or Parquet file, as sequences of words or characters.

Words are in lower case; punctuation marks also count as words. A network knows the most frequent
words in the training part of its fold; all others count as one, the unknown word. Another column,
or several, are the target.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.data.storage import Samples
from allcores_study.data.tokens import Vocabulary
from allcores_study.datasets import _table_files, _table_notes, table

if TYPE_CHECKING:
    import pandas as pd

ALLOWED = {
    "task": ("classification", "regression", "multilabel"),
    "tokens": ("words", "characters"),
    "longest": 1,
    "vocabulary": 1,
    "header": (True, False),
}
WORD, MOSTLY = 5, 0.9  # characters of a text that is hardly one word; the share of such texts
HINT = "`tokens: characters`"


def load(
    folder: Path | None,
    *,
    path: str,
    text: str,
    target: Any,
    task: str = "classification",
    tokens: str = "words",
    longest: int = 256,
    vocabulary: int = 10000,
    groups: str | None = None,
    time: str | None = None,
    folds: str | None = None,
    header: bool = True,
) -> Samples:
    """The texts in the file at path.

    Args:
        text: the column of texts.
        target, task, groups, time, folds: see table.load().
        tokens: "words" or "characters".
        longest: the most tokens of a text that are used; what comes after them is cut off.
        vocabulary: the most words that are known.
        header: see _table_files.read().

    Raises:
        ValueError: there is no such file or column, or a value cannot be used.
    """
    names = [target if task == "classification" else None, groups]
    named = [name for name in names if isinstance(name, str)]
    read = _table_files.read(path, verbatim=[text], named=named, header=header)
    frame = read.frame
    if read.is_longer:
        raise ValueError(
            f"{path}: its rows have one field more than its header: texts with commas need quotes"
        )
    split_by = groups, time, folds
    answers, used = table.answers_of(path, frame, target, task, split_by, [text])
    if text in used:
        raise ValueError(
            f"{path}: the column {text} is both text and target, groups, time or folds"
        )
    table.refuse_missing(path, frame[[text]], "a text can be empty, but not missing")
    texts = of_column(path, frame[text])
    known = Vocabulary.of_texts(texts, tokens, vocabulary)
    if not known.words:
        raise ValueError(f"{path}: the column {text} has no {tokens}")
    lengths = np.array([len(split) for split in known.split(texts)])
    rows = known.numbers(texts, int(min(longest, lengths.max())))
    cut = int((lengths > longest).sum())
    longer = np.array([len(one) > WORD for one in texts])
    if tokens == "words" and ((lengths <= 1) & longer).sum() > MOSTLY * len(texts):
        unsplit = ["nearly every text is one word; if the language has no blanks, set " + HINT]
    else:
        unsplit = []
    notes = [f"{cut:,} of {len(texts):,} texts have more than {longest} {tokens}, and are cut off"]
    return Samples(
        shape=rows.shape,
        chunks=[rows],
        **answers,
        dtype=np.int32,
        vocabulary=known,
        notes=[
            *(notes if cut else []),
            *unsplit,
            *_table_notes.of(read, frame[[]], named),
        ],
    )


def of_column(path: str | Path, values: pd.Series) -> list[str]:
    """Return a column as a list of texts.

    Raises:
        ValueError: it holds something else.
    """
    other = values[~values.map(lambda value: isinstance(value, str))]
    if len(other):
        raise ValueError(
            f"{path}: the column {values.name} holds {other.iloc[0]} in row {other.index[0]}; "
            "expected texts"
        )
    return list(values)
