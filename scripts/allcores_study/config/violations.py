"""What settings.py does not allow in a config, in words, and its JSON schema."""

from __future__ import annotations

import difflib
import functools
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from allcores_study.config import settings
from allcores_study.config.options import choices, number_hint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allcores_study.yaml_files import Keys, Problem


NOT_PLAIN = ("array", "object", "null")  # kinds of values other than texts and numbers


def problems(config: Any) -> list[Problem]:
    """Return a problem for each key and value of a config that Config does not allow."""
    try:
        settings.Config.model_validate(config)
    except ValidationError as error:
        return list(dict.fromkeys(_explained(config, error)))
    return []


def _explained(config: Any, error: ValidationError) -> Iterator[Problem]:
    """Yield the problems of a validation, in terms of the config."""
    found = [(one, *_place(config, one["loc"])) for one in error.errors(include_url=False)]
    # Of a union, such as a number or a list of them, the other alternatives have errors as well.
    outer = {path[:end] for _, path, _ in found for end in range(len(path))}
    missing = defaultdict(list)
    for one, path, value in found:
        if one["type"] == "missing":
            missing[path].append(str(one["loc"][-1]))
        elif one["loc"][-1:] == ("[key]",):
            rule = f"has at most {settings.LONGEST_LABEL} characters"
            if len(path[-1]) <= settings.LONGEST_LABEL:
                rule = "may have only letters, digits, _, - and ."
            yield path[:-1], f"found {path[-1]!r}; a label {rule}"
        elif one["type"] == "extra_forbidden":
            known = sorted(_schema_at(config, path[:-1])["properties"])
            yield path, f"unknown key; {choices(path[-1], known)}"
        elif one["type"] == "repeated":
            yield path, f"found {value!r}; {one['msg']}"
        elif path not in outer:
            yield path, _unexpected(value, _schema_at(config, path))
    for path, keys in missing.items():
        known = _schema_at(config, path).get("properties", {})
        others = sorted(map(str, set(_place(config, path)[1]) - set(known)))
        yield path, f"lacks {', '.join(_with_hint(key, others) for key in keys)}"


def _unexpected(value: Any, schema: dict[str, Any]) -> str:
    """Return what was found, and what is allowed."""
    if "enum" in schema:
        return f"found {value!r}; {choices(value, schema['enum'])}"
    hint = number_hint(value) if isinstance(value, str) and schema.get("type") == "number" else ""
    return f"found {value!r}; expected {expected(schema)}{hint}"


def _with_hint(key: str, others: list[str]) -> str:
    """Return a missing key, with the other key of its entry that is probably meant for it."""
    close = difflib.get_close_matches(key, others, n=1)
    # "lr" for learning_rate
    close += [one for one in others if key == "".join(word[:1] for word in one.lower().split("_"))]
    return f"{key} (did you mean it by {close[0]}?)" if close else key


def _place(config: Any, location: tuple[int | str, ...]) -> tuple[Keys, Any]:
    """Return the keys of pydantic's location that a config has, and the value there.

    The others name alternatives of a union.
    """
    path: Keys = ()
    value = config
    for step in location:
        is_key = isinstance(value, dict) and step in value
        is_position = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if is_key or is_position:
            path, value = (*path, step), value[step]
    return path, value


@functools.cache
def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a config."""
    return settings.Config.model_json_schema()


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a part of the JSON schema with what it refers to."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return resolved(json_schema()["$defs"][name] | schema | {"$ref": ""}) if name else schema


def alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the alternatives of a part of the JSON schema; itself, if there are none."""
    found = schema.get("oneOf") or schema.get("anyOf") or [schema]
    return [resolved(one) for one in found]


def entry_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the values of keys that have no names; {}: anything."""
    (found,) = schema.get("patternProperties", {"": {}}).values()
    return found


def _schema_at(config: Any, path: Keys) -> dict[str, Any]:
    """Return the part of the JSON schema for the value at a path of a config."""
    schema, value = json_schema(), config
    for step in (*path, None):
        schema = _of_form(resolved(schema), value)
        if step is None:
            break
        if isinstance(step, int):
            schema = schema["items"]
        else:
            schema = schema.get("properties", {}).get(step) or entry_of(schema)
        value = value[step]
    return schema


def _of_form(schema: dict[str, Any], value: Any) -> dict[str, Any]:
    """Return the alternative that a value means, if its form shows that; else all of them."""
    kind = "array" if isinstance(value, list) else "object" if isinstance(value, dict) else ""
    meant = [
        one
        for one in alternatives(schema)
        if one.get("type") == kind or (not kind and one.get("type") not in NOT_PLAIN)
    ]
    if len(meant) > 1 and kind == "object":  # of models
        meant = [one for one in meant if one["title"].lower() == settings.kind_of_model(value)]
    return meant[0] if len(meant) == 1 else schema


def expected(schema: dict[str, Any]) -> str:
    """Return what a part of the JSON schema allows, in words."""
    if len(alternatives(schema)) > 1:
        return ", or ".join(dict.fromkeys(map(expected, alternatives(schema))))
    if "const" in schema:
        return repr(schema["const"])
    kinds = {
        "object": "keys and values",
        "array": "a list of at least one",
        "string": "a text",
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "null": "nothing",
    }
    text = kinds[schema.get("type", "object")]
    if schema.get("uniqueItems"):
        text += ", none of them twice"
    bounds = {"minimum": "from", "exclusiveMinimum": "above"}
    bounds |= {"maximum": "up to", "exclusiveMaximum": "and below"}
    for key, words in bounds.items():
        if key in schema:
            bound = schema[key]
            text += f" {words} {bound:g}" if isinstance(bound, float) else f" {words} {bound}"
    return text
