"""Marks: empty files by whose names Snakemake sees what is there.

The mark of a dataset, folds, a recipe, a run, a choice or a report lies beside it and is called
STEM.DIGEST, with a digest of what it is made of. What is made of something else has a mark of
another name, which is not there: so Snakemake makes it, whatever the times of files and its own
records say. Of something damaged STEM.DIGEST-2 is asked for.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

# Of the part of a name behind the last dot.
PATTERN = "[0-9a-f]{8}(?:-[0-9]+)?"


def wanted(stem: str | Path, made_of: str, is_valid: bool) -> str | None:
    """The mark to ask Snakemake for.

    Args:
        stem: path of the mark without its suffix.
        made_of: a digest of 8 hexadecimal digits.
        is_valid: whether what it stands for is there, undamaged, and made of this.

    Returns:
        One that is there, if it is valid (None: it has none), else one that is not there.
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


def add_flag(add: Callable[..., Any], text: str = "what to write last") -> None:
    """Add the flag for put_all() to a program, by its add_argument(); without it there is none."""
    add("--mark", action="append", default=[], metavar="FILE", help=text)


def put_all(marks: Iterable[str | Path]) -> None:
    for mark in marks:
        put(mark)


def date_back(marks: Iterable[str | Path]) -> None:
    """Set the times of those marks that are dated in the future to now.

    Snakemake ends a job as failed whose inputs are newer than what it has made.
    """
    now = time.time()
    for mark in marks:
        with contextlib.suppress(OSError):  # it is not there yet, or another user's
            if Path(mark).stat().st_mtime > now:
                os.utime(mark)


def _there(stem: str | Path) -> list[Path]:
    """The marks that are there, sorted by name."""
    stem = Path(stem)
    name = re.compile(rf"{re.escape(stem.name)}\.{PATTERN}")
    with contextlib.suppress(OSError):
        return sorted(file for file in stem.parent.iterdir() if name.fullmatch(file.name))
    return []
