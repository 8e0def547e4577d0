"""The schema of a config: its defaults, and checks with messages in the terms of the config."""

from __future__ import annotations

import difflib
import functools
import re
from typing import TYPE_CHECKING, Any

import yaml

from allcores.options import choices, is_integer, is_number, number_hint
from allcores_study import programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

    from allcores_study.yaml_files import Keys, Problem


FILE = programs.PROJECT / "workflow" / "schemas" / "config.schema.yaml"
# The key of an expanded config for the candidates of its sweeps, which no file has: label of each
# -> {"family": the label in the file, "values": {key: value}}; see sweeps.py.
SWEPT = "swept"
# The key for their entries as the file has them: family -> entry.
WRITTEN = "written"


@functools.cache
def properties() -> dict[str, Any]:
    """Return the schema of each key of a config, by its name."""
    return _content()["properties"]


def keys(section: str) -> dict[str, Any]:
    """Return the schema of each key of an entry in a section of a config, by its name."""
    return properties()[section]["additionalProperties"]["properties"]


@functools.cache
def defaults(section: str | None = None) -> dict[str, Any]:
    """Return key -> default: of a config, or of an entry in a section of it."""
    of_keys = keys(section) if section else properties()
    return {key: schema["default"] for key, schema in of_keys.items() if "default" in schema}


def is_label(text: str) -> bool:
    """Return whether a text can be the name of a study, a model or a dataset."""
    rules = _content()["$defs"]["label"]
    return len(text) <= rules["maxLength"] and re.match(rules["pattern"], text) is not None


@functools.cache
def _content() -> dict[str, Any]:
    return yaml.load(FILE.read_text(), Loader=yaml.CSafeLoader)


def types(config: Any) -> list[Problem]:
    """Return problems for what only YAML has: keys that are not texts, dates, sets."""
    return list(_check_types(config, ()))


def violations(config: Any) -> list[Problem]:
    """Return problems for what the schema does not allow in a config without sweeps."""
    errors = _validator().iter_errors(config)
    return [problem for error in errors for problem in _explain(error)]


@functools.cache
def _validator() -> Validator:
    from jsonschema import Draft202012Validator, validators  # train.py does not need it

    # JSON would take 2.0 for an integer, and YAML's .nan and .inf for numbers.
    checker = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda checker, value: is_integer(value),
            "number": lambda checker, value: is_number(value),
        }
    )
    return validators.extend(Draft202012Validator, type_checker=checker)(_content())


def _check_types(value: Any, path: Keys) -> Iterator[Problem]:
    if isinstance(value, dict):
        for key, child in value.items():
            if isinstance(key, str):
                yield from _check_types(child, (*path, key))
            else:
                read = " (as YAML reads no, off, yes and on)" if isinstance(key, bool) else ""
                yield path, f"found the key {key!r}{read}, which is not a text; put it in quotes"
    elif isinstance(value, list):
        for position, child in enumerate(value):
            yield from _check_types(child, (*path, position))
    elif not isinstance(value, str | int | float | None):
        kind = type(value).__name__
        yield (
            path,
            f"found a {kind}; expected a text (in quotes), a number, true, false, a list or keys",
        )


def as_json(value: Any) -> Any:
    """Return a config without the keys that types() finds: the validator expects texts."""
    if isinstance(value, dict):
        return {key: as_json(child) for key, child in value.items() if isinstance(key, str)}
    if isinstance(value, list):
        return [as_json(child) for child in value]
    return value


def entries(config: Any, section: str) -> dict[str, dict[str, Any]]:
    """Return the entries in a section of anything read as a config, if they are mappings."""
    found = config.get(section) if isinstance(config, dict) else None
    found = found if isinstance(found, dict) else {}
    return {label: entry for label, entry in found.items() if isinstance(entry, dict)}


def _explain(error: ValidationError) -> Iterator[Problem]:
    """Yield the problems of a schema violation, in terms of the config."""
    path = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        known = sorted(error.schema["properties"])
        for key in sorted(set(error.instance) - set(known)):
            yield (*path, key), f"unknown key; {choices(key, known)}"
    elif error.validator == "required":
        others = sorted(map(str, set(error.instance) - set(error.schema["properties"])))
        missing = [key for key in error.validator_value if key not in error.instance]
        yield path, f"lacks {', '.join(_with_hint(key, others) for key in missing)}"
    elif error.validator == "anyOf":
        allowed = ", or ".join(expected(schema) for schema in error.validator_value)
        yield path, f"found {error.instance!r}; expected {allowed}"
    elif error.validator == "enum":
        yield path, f"found {error.instance!r}; {choices(error.instance, error.validator_value)}"
    elif error.validator == "pattern":
        yield path, f"found {error.instance!r}; a label may have only letters, digits, _, - and ."
    elif error.validator == "maxLength":
        yield (
            path,
            f"found {error.instance!r}; a label has at most {error.validator_value} characters",
        )
    elif error.validator == "uniqueItems":
        yield path, f"found {error.instance!r}; nothing may be listed twice"
    else:
        is_text = isinstance(error.instance, str) and error.schema.get("type") == "number"
        hint = number_hint(error.instance) if is_text else ""
        yield path, f"found {error.instance!r}; expected {expected(error.schema)}{hint}"


def _with_hint(key: str, others: list[str]) -> str:
    """Return a missing key, with the other key of its entry that is probably meant for it."""
    close = difflib.get_close_matches(key, others, n=1)
    return f"{key} (did you mean it by {close[0]}?)" if close else key


def expected(schema: dict[str, Any]) -> str:
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
    types = schema.get("type", "object")
    text = " or ".join(kinds[kind] for kind in ([types] if isinstance(types, str) else types))
    if schema.get("uniqueItems"):
        text += ", none of them twice"
    bounds = {"minimum": "from", "exclusiveMinimum": "above"}
    bounds |= {"maximum": "up to", "exclusiveMaximum": "and below"}
    for key, words in bounds.items():
        if key in schema:
            text += f" {words} {schema[key]}"
    return text
