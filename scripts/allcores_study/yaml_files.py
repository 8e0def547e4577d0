"""YAML files of a config: their content, the lines of its parts, and keys that come twice."""

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
    """The mapping in a YAML file.

    Raises:
        ValueError: the file is not UTF-8, not YAML or no mapping; the message names it.
        OSError: it cannot be read.
    """
    try:
        content = _parsed(file, Path(file).read_text(encoding="utf-8"))
        json.dumps(content, skipkeys=True, default=str)  # refuses what contains itself by an alias
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8, the encoding of YAML: {error}") from None
    except (yaml.YAMLError, ValueError) as error:  # the latter of JSON, and of impossible dates
        raise ValueError(f"{file}: {error}") from None
    except RecursionError:
        raise ValueError(f"{file}: its lists or keys are nested too deeply") from None
    if not isinstance(content, dict):
        kind = "nothing" if content is None else f"a {type(content).__name__}"
        raise ValueError(f"{file}: found {kind}; expected keys and values")
    return content


def _parsed(file: str | Path, text: str) -> Any:
    """What is in a file; as by Snakemake, JSON is tried first, of whose numbers YAML reads some,
    such as 5e-05, as texts."""
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
    """The config with every text that spells a number or a truth value converted."""
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
    """Path of keys -> (file, line) for everything in the files, and the keys that come twice.

    Returns:
        ({path: (file, line)}, [(path, text), ...]); later files stand on top of earlier ones.
    """
    lines: dict[Keys, Place] = {}
    repeated: list[Problem] = []
    for file in files:
        try:
            node = yaml.compose(Path(file).read_text(encoding="utf-8"))
            if node is not None:
                _walk(node, (), str(file), lines, repeated)
        except (yaml.YAMLError, RecursionError):  # JSON with tabs, say: no places then
            continue
    return lines, repeated


def place(path: Keys, lines: dict[Keys, Place]) -> Place:
    """(file, line) of the innermost part of a path that is in a file; ("", 0): none is."""
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
            repeated.append(((*path, key), "stands here twice; the last one would win"))
    elif isinstance(node, yaml.SequenceNode):
        children = [(i, value.start_mark, value) for i, value in enumerate(node.value)]
    for key, mark, child in children:
        if isinstance(key, str | int):
            lines[*path, key] = (file, mark.line + 1)
            _walk(child, (*path, key), file, lines, repeated)
