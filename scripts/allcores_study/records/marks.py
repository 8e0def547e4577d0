"""Marks: empty files whose names show Snakemake what is there.

The mark of a dataset, folds, a run or a report lies beside it and is called
STEM.DIGEST, with a digest of what it is made of. If that changes, the mark has another name, which
is not there, so Snakemake rebuilds the result, whatever file times and its own records show.
For a result that has this mark and has to be rebuilt, because it is damaged or lacks what is
wanted now, STEM.DIGEST-2 is requested.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

# Of the part of a name after the last dot.
PATTERN = "[0-9a-f]{8}(?:-[0-9]+)?"


def wanted(stem: str | Path, made_of: str, is_valid: bool) -> str | None:
    """Return the mark to ask Snakemake for.

    Args:
        stem: path of the mark without its suffix.
        made_of: a digest of 8 hexadecimal digits.
        is_valid: whether the result is there, undamaged, and made of this.

    Returns:
        One that is there if the result is valid (None: it has no mark), else one that is not.
    """
    numbered = [mark for mark in _there(stem) if mark.suffix[1:9] == made_of]
    if is_valid:
        return str(numbered[0]) if numbered else None
    number = 1 + max((int(mark.suffix[10:] or 1) for mark in numbered), default=0)
    return f"{stem}.{made_of}" + (f"-{number}" if number > 1 else "")


def put(mark: str | Path) -> None:
    """Write a mark in place of the earlier ones of the same thing."""
    mark = Path(mark)
    for earlier in _there(mark.with_suffix("")):
        earlier.unlink(missing_ok=True)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def add_flag(add: Callable[..., Any], text: str = "mark to write last") -> None:
    """Add the flag for put_all() to a program, by its add_argument()."""
    add("--mark", action="append", default=[], metavar="FILE", help=text)


def put_all(marks: Iterable[str | Path]) -> None:
    for mark in marks:
        put(mark)


def date_back(marks: Iterable[str | Path]) -> None:
    """Set the times of marks that are dated in the future to now.

    Snakemake fails a job whose inputs are newer than its outputs.
    """
    now = time.time()
    for mark in marks:
        with contextlib.suppress(OSError):  # not there yet, or another user's
            if Path(mark).stat().st_mtime > now:
                os.utime(mark)


def _there(stem: str | Path) -> list[Path]:
    """Return the marks that are there, sorted by name."""
    stem = Path(stem)
    name = re.compile(rf"{re.escape(stem.name)}\.{PATTERN}")
    with contextlib.suppress(OSError):
        return sorted(file for file in stem.parent.iterdir() if name.fullmatch(file.name))
    return []
