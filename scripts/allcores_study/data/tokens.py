"""Sequences of tokens: texts split into words or characters, or the user's own numbers.

A sequence is a row of token numbers, filled up with PADDING to the length of the longest. The
training samples alone decide which words a network knows.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

# The first two token numbers: no token, and a word that no training sample has.
PADDING, UNKNOWN = 0, 1
OWN, WORDS, CHARACTERS = "numbers", "words", "characters"


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that a network knows.

    Attributes:
        kind: WORDS or CHARACTERS of a text, or OWN numbers, which are used as they are.
        size: number of token numbers, including PADDING and UNKNOWN.
        words: the word of each token number from UNKNOWN + 1; (): the numbers are OWN.
        most: the most words that are known: those that are most frequent in the training part.
    """

    kind: str
    size: int
    words: tuple[str, ...] = ()
    most: int = 0

    @classmethod
    def of_texts(cls, texts: Iterable[str], kind: str, most: int) -> Vocabulary:
        """Return the Vocabulary of all words in some texts."""
        words = sorted(Counter(word for text in texts for word in split(text, kind)))
        return cls(kind, len(words) + UNKNOWN + 1, tuple(words), most)

    @property
    def most_known(self) -> int:
        """The size of the largest vocabulary that a network can have."""
        return min(self.size, self.most + UNKNOWN + 1) if self.words else self.size

    @classmethod
    def from_json(cls, values: Any) -> Vocabulary | None:
        """Return the Vocabulary that to_json() described; None for None."""
        return values and cls(**values | {"words": tuple(values["words"])})

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"words": list(self.words)}

    def split(self, texts: Iterable[str]) -> list[list[str]]:
        """Return the words of each text."""
        return [split(text, self.kind) for text in texts]

    def numbers(self, texts: Sequence[str] | np.ndarray, longest: int) -> np.ndarray:
        """Return texts as (n, longest) int32; longer ones are cut."""
        number_of = {word: place for place, word in enumerate(self.words, start=UNKNOWN + 1)}
        rows = np.full((len(texts), longest), PADDING, np.int32)
        for row, text in zip(rows, texts, strict=True):
            tokens = [number_of.get(word, UNKNOWN) for word in split(text, self.kind)[:longest]]
            row[: len(tokens)] = tokens
        return rows

    def known_by(self, rows: np.ndarray) -> tuple[Vocabulary, np.ndarray]:
        """Return (the Vocabulary of the words in some rows, the new number of each old number).

        Args:
            rows: of the training samples, (n, L) integers.
        """
        if self.kind == OWN:
            return self, np.arange(self.size, dtype=np.int32)
        counts = np.bincount(rows.ravel(), minlength=self.size)[UNKNOWN + 1 :]
        by_frequency = np.argsort(-counts, kind="stable")[: self.most]
        known = by_frequency[counts[by_frequency] > 0]
        renumbered = np.full(self.size, UNKNOWN, np.int32)
        renumbered[PADDING] = PADDING
        renumbered[known + UNKNOWN + 1] = np.arange(len(known)) + UNKNOWN + 1
        words = tuple(self.words[place] for place in known)
        return Vocabulary(self.kind, len(words) + UNKNOWN + 1, words, self.most), renumbered


def split(text: str, kind: str) -> list[str]:
    """Return the words of a text in lower case and its punctuation marks, or its characters.

    Both are in Unicode's composed form (NFC).
    """
    text = unicodedata.normalize("NFC", text)
    if kind == CHARACTERS:
        return list(text)
    marks = "" if text.isascii() else _marks()
    return re.findall(rf"[\w{marks}]+|[^\w\s]", text.lower())


@functools.cache
def _marks() -> str:
    """Return the combining marks of all scripts: parts of words that `\\w` does not match."""
    letters = map(chr, range(sys.maxunicode + 1))
    return "".join(letter for letter in letters if unicodedata.category(letter)[0] == "M")


def longest(rows: np.ndarray) -> int:
    """Return the length of the longest sequence, at least 1; (n, L) integers, L > 0."""
    used = np.flatnonzero((rows != PADDING).any(axis=0))
    return int(used[-1]) + 1 if len(used) else 1
