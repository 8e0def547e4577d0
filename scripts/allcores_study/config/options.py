"""Check options against a signature. Each problem is reported with what is allowed."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def check(
    path: tuple[Any, ...],
    options: Mapping[str, Any],
    defaults: Mapping[str, Any],
    allowed_values: Mapping[str, Any],
    other_keys: Iterable[str] = (),
) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield (path, problem) for options that do not match a signature.

    Args:
        path: keys that lead to the options.
        options: name -> value.
        defaults: name -> default of each known option; ...: it has none.
        allowed_values: name -> what is allowed, see _check_value(). Names may be missing.
        other_keys: further names to list as known.
    """
    for key, value in options.items():
        if key not in defaults:
            yield (*path, key), f"unknown key; {choices(key, [*defaults, *other_keys])}"
            continue
        default, allowed = defaults[key], allowed_values.get(key)
        if allowed is None and isinstance(default, bool):
            allowed = (True, False)
        takes_number = isinstance(default, int | float) and not isinstance(default, bool)
        if isinstance(value, str) and takes_number:
            yield (*path, key), f"found the text {value!r}; expected a number{number_hint(value)}"
        elif takes_number and not isinstance(value, int | float | None):
            yield (*path, key), f"found {value!r}; expected something like {default!r}"
        elif isinstance(default, tuple) and not isinstance(value, list):
            yield (*path, key), f"found {value!r}; expected a list like {list(default)}"
        else:
            yield from _check_value((*path, key), value, allowed)
    missing = [k for k, default in defaults.items() if default is ... and k not in options]
    if missing:
        yield path, f"lacks {', '.join(missing)}"


def _check_value(
    path: tuple[Any, ...], value: Any, allowed: Any
) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield (path, problem) for a value that is not allowed.

    Args:
        allowed: a tuple of values; [least, most]; or the least value, an int for whole numbers and
            a float for any number. For a list, what each element may be. None: anything.
    """
    if isinstance(value, list) and not isinstance(allowed, tuple):
        for position, element in enumerate(value):
            yield from _check_value((*path, position), element, allowed)
    elif isinstance(allowed, tuple):
        if value not in allowed:
            yield path, f"found {value!r}; {choices(value, allowed)}"
    elif allowed is not None:
        least, most = allowed if isinstance(allowed, list) else (allowed, math.inf)
        is_right = is_integer if isinstance(least, int) else is_number
        if not (is_right(value) and least <= value <= most):
            kind = "a whole number" if isinstance(least, int) else "a number"
            end = "" if most == math.inf else f" to {most:g}"
            yield path, f"found {value!r}; expected {kind} from {least:g}{end}"


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number. A bool is not."""
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def number_hint(value: Any) -> str:
    """Return a hint on what to write instead of 1e-3, which YAML 1.1 reads as text."""
    try:
        number = float(value)
    except ValueError:
        return ""
    if not math.isfinite(number):
        return ""
    return f"; YAML reads that as text: write {int(number) if number.is_integer() else number!r}"


def choices(value: Any, known: Iterable[Any]) -> str:
    """List the known names, and the one that is probably meant."""
    by_lower_case = {str(name).lower(): name for name in known}
    close = difflib.get_close_matches(str(value).lower(), by_lower_case, n=1)
    hint = f" (did you mean {by_lower_case[close[0]]}?)" if close else ""
    return f"known: {', '.join(dict.fromkeys(map(str, known))) or 'none'}{hint}"
