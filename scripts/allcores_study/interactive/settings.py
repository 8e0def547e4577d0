"""Arguments of Python as the entries of a config: classes, estimators and numbers."""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from allcores.files import sha256_of
from allcores_study.config.settings import is_label
from allcores_study.interactive import pickled

LISTS = list | tuple | range | np.ndarray | pd.Index
# Parameters of estimators that the study sets, by its cores and seeds.
OF_STUDY = ("n_jobs", "random_state")
# How a network given as a bare class or function is trained; a dict sets everything itself.
USUAL = {"batch_size": 32, "epochs": 20, "optimizer": {"name": "adam", "lr": 0.001}}


def entries(section: str, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the entries of a section of a config, such as `schedules`.

    Raises:
        ValueError: a value cannot be written into a config.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{section}: found a {type(given).__name__}; expected {{label: entry}}")
    _check_labels(section, given)
    return {label: mapping(f"{section}.{label}", value) for label, value in given.items()}


def _check_labels(section: str, given: Mapping[str, Any]) -> None:
    for label in given:
        if not isinstance(label, str) or not is_label(label):
            raise ValueError(f"{section}: found {label!r}; expected letters, digits, _, - and .")


def models(
    given: Mapping[str, Any], keep: Callable[[str, bytes], Path]
) -> dict[str, dict[str, Any]]:
    """Return the section `models` of a config.

    Args:
        given: label -> the entry as a dict whose `name` may be a class or function; or only that
            class or function, which is then trained with USUAL; or an estimator.
        keep: writes the pickled estimator of a label to a file, and returns its path.

    Raises:
        ValueError: a value cannot be written into a config.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"models: found a {type(given).__name__}; expected {{label: entry}}")
    _check_labels("models", given)
    found = {}
    for label, value in given.items():
        place = f"models.{label}"
        try:
            found[label] = _entry(place, value)
        except ValueError:
            if inspect.isclass(value) or not hasattr(value, "get_params"):
                raise
            content = pickled.content_of(place, value)
            file = str(keep(label, content))
            found[label] = {"import": pickled.FUNCTION, "file": file, "sha256": sha256_of(content)}
    return found


def mapping(place: str, given: Any) -> dict[str, Any]:
    """Return a dict of settings as a config has it.

    Raises:
        ValueError: it is no dict, or a value cannot be written into a config.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{place}: found a {type(given).__name__}; expected a dict of settings")
    return plain(place, given)


def names(place: str, given: Any) -> list[str]:
    """Return names of metrics; a function is named by its import path."""
    given = [given] if isinstance(given, str) or callable(given) else given
    if not isinstance(given, list | tuple):
        raise ValueError(f"{place}: found {given!r}; expected names or functions, in a list")
    return [
        (import_path if callable(one) else plain)(f"{place}[{number}]", one)
        for number, one in enumerate(given)
    ]


def _entry(place: str, given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return plain(place, given)
    if inspect.isclass(given) or inspect.isfunction(given):
        is_estimator = hasattr(given, "fit") and hasattr(given, "predict")
        is_estimator |= getattr(sys.modules[given.__module__], "IS_ESTIMATOR", False)
        return plain(place, given) | ({} if is_estimator else USUAL)
    if hasattr(given, "get_params") and hasattr(given, "fit"):
        return _of_estimator(place, given)
    kind = type(given).__name__
    if callable(given) and not hasattr(given, "parameters"):
        raise ValueError(f"{place}: found a {kind}; expected a class or function with a name")
    raise ValueError(
        f"{place}: found a {kind}; expected a dict of settings, a class or function that returns "
        f"the model, or an estimator. Every fold trains a new model: write `dict(name={kind}, ...)`"
    )


def _of_estimator(place: str, estimator: Any) -> dict[str, Any]:
    """Return the class of an estimator, and those of its parameters that are not defaults."""
    kind = type(estimator)
    usual = {
        name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()
    }
    chosen = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in OF_STUDY and (name not in usual or repr(value) != repr(usual[name]))
    }
    for name, value in chosen.items():
        if isinstance(value, LISTS) and not isinstance(usual.get(name), LISTS):
            raise ValueError(f"{place}.{name}: a config takes a list for a sweep")
        if callable(value) and not hasattr(value, "get_params"):
            raise ValueError(f"{place}.{name}: a config takes a function for a component")
    values = {name: plain(f"{place}.{name}", value) for name, value in chosen.items()}
    return {"import": import_path(place, kind), **values}


def plain(place: str, value: Any) -> Any:
    """Return a value as a config has it; a class or function is named by `import`.

    Raises:
        ValueError: a config has no such value.
    """
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{place}: found the key {key!r}; expected a text")
        entry = {key: plain(f"{place}.{key}", child) for key, child in value.items()}
        return entry | entry.pop("name") if isinstance(entry.get("name"), dict) else entry
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return plain(place, value.item())
    if isinstance(value, LISTS):
        return [plain(f"{place}[{number}]", child) for number, child in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place}: found {value}; expected a finite number")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if inspect.isclass(value) or inspect.isfunction(value):
        return {"import": import_path(place, value)}
    raise ValueError(
        f"{place}: found a {type(value).__name__}, which a config cannot hold; expected numbers, "
        "texts, lists and dicts. An estimator is given as it is, not in a dict; so is a search "
        "over its parameters"
    )


def import_path(place: str, found: Any) -> str:
    """Return the import path, "package.module:Name", of a class or function.

    Raises:
        ValueError: no other process can import it.
    """
    if not hasattr(found, "__qualname__"):
        kind = type(found).__name__
        raise ValueError(f"{place}: found a {kind}; expected a function with a name, in a file")
    module, name = found.__module__, found.__qualname__
    if found.__name__ == "<lambda>":
        raise ValueError(f"{place}: found a lambda; expected a function with a name, in a file")
    if module == "__main__":
        file = f"{name.lower()}.py"
        raise ValueError(
            f"{place}: {name} is defined in this script or notebook, which other processes cannot "
            f"import; move it to {file} (in a notebook, begin its cell with `%%writefile {file}`), "
            f"and write `from {name.lower()} import {name}`"
        )
    if not name.isidentifier() or getattr(sys.modules[module], name, None) is not found:
        raise ValueError(
            f"{place}: {name} of {module} cannot be imported from there; define it at the top "
            "level of its module"
        )
    return f"{_public(module, found)}:{name}"


def _public(module: str, found: Any) -> str:
    """Return the shortest package that offers a class, as `sklearn.ensemble` does for its own."""
    parts = module.split(".")
    if not any(part.startswith("_") for part in parts):
        return module
    for count in range(1, len(parts)):
        package = importlib.import_module(".".join(parts[:count]))
        if getattr(package, found.__name__, None) is found:
            return package.__name__
    return module
