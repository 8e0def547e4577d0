"""Colours, only where the output is a terminal that shows them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RED, GREEN, RESET = "\033[31m", "\033[32m", "\033[0m"
# How the first line on a failed job begins.
FAILED = "  failed: "


def are_shown(stream: TextIO) -> bool:
    """Return whether to write colours to a stream.

    Users turn them off with the environment variable NO_COLOR: see https://no-color.org.
    """
    is_off = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not is_off and stream.isatty()


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """Return a text in a colour if the stream shows colours, otherwise the text."""
    return f"{colour}{text}{RESET}" if text and are_shown(stream) else text


def with_red_failures(texts: Iterable[str], stream: TextIO) -> Iterator[str]:
    """Yield the texts; where one begins with a line that names a failed job, that line is red."""
    for text in texts:
        first, end, others = text.partition("\n")
        is_failure = first.startswith(FAILED)
        yield (coloured(first, RED, stream) if is_failure else first) + end + others
