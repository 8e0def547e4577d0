"""YAML files of a config: their content, the line of each part, and duplicate keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

    Keys = tuple[Any, ...]  # a path of keys and positions in a config
    Problem = tuple[Keys, str]  # where something is wrong, and what
    Place = tuple[str, int]  # file and line


def read(file: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML file.

    Raises:
        ValueError: the file is not UTF-8, not YAML or not a mapping; the message names it.
        OSError: it cannot be read.
    """
    try:
        content = _parsed(file, Path(file).read_text(encoding="utf-8"))
        json.dumps(content, skipkeys=True, default=str)  # rejects an alias that contains itself
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8; save it in this encoding: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        text = ", ".join(filter(None, (error.context, error.problem)))
        raise ValueError(f"{file}:{line}: {text}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: JSON, impossible dates
        raise ValueError(f"{file}: {error}") from None
    except RecursionError:
        raise ValueError(f"{file}: lists or keys are nested too deeply") from None
    if not isinstance(content, dict):
        kind = "nothing" if content is None else f"a {type(content).__name__}"
        raise ValueError(f"{file}: found {kind}; expected keys and values")
    return content


def _parsed(file: str | Path, text: str) -> Any:
    """Return the content of a file.

    Like Snakemake, it tries JSON first: YAML reads some JSON numbers, such as 5e-05, as texts.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        if Path(file).suffix == ".json" and not _is_yaml(text):
            raise
    return yaml.safe_load(text)


def _is_yaml(text: str) -> bool:
    try:
        return isinstance(yaml.safe_load(text), dict)
    except yaml.YAMLError:
        return False


def typed(config: Any) -> Any:
    """Return the config with texts that spell a number or a truth value converted."""
    if isinstance(config, dict):
        return {key: typed(value) for key, value in config.items()}
    if isinstance(config, list):
        return [typed(value) for value in config]
    if isinstance(config, str):
        try:
            value = yaml.safe_load(config)
        except (yaml.YAMLError, ValueError):  # a text like any other
            return config
        return value if isinstance(value, int | float) else config
    return config


def places(files: Iterable[str | Path]) -> tuple[dict[Keys, Place], list[Problem]]:
    """Return file and line of everything in the files, and the duplicate keys.

    Returns:
        ({path of keys: (file, line)}, [(path, text), ...]); later files override earlier ones.
    """
    lines: dict[Keys, Place] = {}
    repeated: list[Problem] = []
    for file in files:
        try:
            node = yaml.compose(Path(file).read_text(encoding="utf-8"))
            if node is not None:
                _walk(node, (), str(file), lines, repeated)
        except (yaml.YAMLError, RecursionError):  # such as JSON with tabs: it gets no places
            continue
    return lines, repeated


def place(path: Keys, lines: dict[Keys, Place]) -> Place:
    """Return (file, line) of the innermost part of a path that is in a file, or ("", 0)."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, ("", 0))


def _walk(
    node: yaml.Node, path: Keys, file: str, lines: dict[Keys, Place], repeated: list[Problem]
) -> None:
    """Collect the lines of a node and of all nodes in it."""
    lines.setdefault(path, (file, node.start_mark.line + 1))
    children = []
    if isinstance(node, yaml.MappingNode):
        children = [(key.value, key.start_mark, value) for key, value in node.value]
        keys = [key for key, _, _ in children if isinstance(key, str)]
        for key in {key for key in keys if keys.count(key) > 1}:
            repeated.append(((*path, key), "duplicate key; remove one, or the last would win"))
    elif isinstance(node, yaml.SequenceNode):
        children = [(i, value.start_mark, value) for i, value in enumerate(node.value)]
    for key, mark, child in children:
        if isinstance(key, str | int):
            lines[*path, key] = (file, mark.line + 1)
            _walk(child, (*path, key), file, lines, repeated)
