"""Write config/config.yaml's comments, docs/config.md and the schema for editors from what
config/settings.py says of each key, and docs/commands.md from what the programs say of themselves.

It rewrites the comments of config/config.yaml and puts its keys in the order of settings.py. Their
values stay.
"""

import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from allcores_study.config import registry, violations  # noqa: E402

CONFIG, REFERENCE = ROOT / "config" / "config.yaml", ROOT / "docs" / "config.md"
COMMANDS = ROOT / "docs" / "commands.md"
SCHEMA, EXAMPLES = ROOT / "config" / "schema.json", ROOT / "docs" / "examples.txt"
# Columns of a line, and of the comment of a key that is not longer than it.
WIDTH, COMMENT = 120, 29
HEAD = """\
The default studies, with an explanation of every key of a config.

The study `accuracy` cross-validates three networks and a random forest, packed onto the cores. The
study `speed` times strategies on one core and on two, one run at a time. The data are handwritten
digits that come with scikit-learn, so nothing is downloaded. On 2 cores it takes a few minutes.

Write your own studies into another file, and run it:

snakemake --cores all --configfile config/mine.yaml

`make manual` writes these comments from scripts/allcores_study/config/settings.py."""
COMPLETION = "# yaml-language-server: $schema=schema.json"
INTRODUCTION = """\
This page lists every key of a config. A config is a YAML file that you run with
`snakemake --cores all --configfile config/mine.yaml`. `config/config.yaml` shows the keys in use.
Editors that support YAML schemas complete and explain them. `make manual` writes this page from
`scripts/allcores_study/config/settings.py`."""
OF_COMMANDS = """\
This page lists the commands and their flags, as `--help` prints them. Studies are run by
`snakemake`: [running.md](running.md) shows the flags that you need, and
[its documentation](https://snakemake.readthedocs.io) lists all. If you have installed the package,
write `allcores plan` instead of `python scripts/plan.py`, and so on. `make manual` writes this
page."""
PROGRAMS = ("plan", "status", "predict", "train", "command")
BUILT_IN = {
    "models": registry.models,
    "schedules": registry.schedules,
    "strategies": registry.strategies,
    "datasets": registry.datasets,
}


def properties():
    """Key of a config -> its part of the schema, with the examples of docs/examples.txt; entries of
    sections are its `additionalProperties`."""
    found = {}
    examples = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", EXAMPLES.read_text(), re.M | re.S))
    for key, part in violations.json_schema()["properties"].items():
        part = dict(part)
        if "patternProperties" in part:
            (entry, *_) = violations.alternatives(violations.entry_of(part))
            part["additionalProperties"] = _whole(entry)
            if key in examples:
                part["examples"] = [f"{one}\n" for one in examples[key].strip().split("\n\n")]
        elif part.get("default") is None:
            part.pop("default", None)
        found[key] = part
    return found


def _whole(part):
    """A part of the schema with what it refers to; what may be swept is shown as one value."""
    first = violations.alternatives(part)[0] if "oneOf" in part else part
    named = violations.resolved(first)
    whole = named | {k: v for k, v in part.items() if k == "description"}
    whole = {k: v for k, v in whole.items() if not (k == "default" and v is None)} | {
        k: part[k] for k in ("examples",) if k in part
    }
    if named.get("additionalProperties") is True and "description" in named:
        whole["additionalProperties"] = {"description": named["description"].rstrip(".")}
    if "properties" in whole:
        whole["properties"] = {k: _whole(v) for k, v in whole["properties"].items()}
    return whole


def schema():
    """config/schema.json: for editors."""
    return json.dumps(violations.json_schema(), indent=1) + "\n"


def annotated(config, properties):
    """The text of a config with a comment at every key, and what it might say besides."""
    head = [line for part in HEAD.split("\n\n") for line in ["#", *_comment(part)]]
    lines = [*head[1:], COMPLETION]
    for section, described in properties.items():
        lines.append("")
        entries = described.get("additionalProperties")
        if not isinstance(entries, dict):
            lines += _comment(_sentences(described))
            lines += _pair(section, config.get(section), described, indent=0, text="")
            continue
        lines += _comment(
            f"{section.upper()}: {_sentences(described)} {_built_in(section)}".strip()
        )
        lines.append(f"{section}:")
        lines += _entries(config[section], entries)
        for example in described.get("examples", []):
            lines += [f"  # {line}".rstrip() for line in example.splitlines()]
    return "\n".join(lines) + "\n"


def _entries(entries, described):
    """The labelled entries of a section, each key explained where it stands first."""
    lines, explained, first = [], set(), True
    used = {key for entry in entries.values() for key in entry or {}}
    for label, entry in entries.items():
        if not entry:
            lines.append(f"  {label}: {{}}")
            continue
        lines.append(f"  {label}:")
        lines += _keys(entry, described, 4, explained, used if first else None)
        first = False
    return lines


def _keys(entry, described, indent, explained, used):
    """The lines of a mapping: its keys and, where `used` is not None, examples of those that no
    entry has, in the schema's order."""
    properties = described.get("properties", {})
    others = described.get("additionalProperties")
    others = dict.fromkeys(entry, others if isinstance(others, dict) else {})
    order = [key for key in entry if key not in properties], list(properties)
    for key in [*order[0], *order[1]]:
        text = "" if key in explained else _words(properties.get(key, others.get(key, {})))
        if key in entry:
            nested = properties.get(key, {}).get("properties")
            if nested and used is not None:
                yield from _pair(key, None, {}, indent, text)
                yield from _keys(entry[key], properties[key], indent + 2, set(), ())
            else:
                yield from _pair(key, entry[key], {}, indent, text)
            explained.add(key)
        elif used is not None and key not in used and "examples" in properties[key]:
            yield from _pair(key, None, properties[key], indent, text)


def _pair(key, value, described, indent, text):
    """A key with its value, or else with an example of it as a comment, and what it means."""
    if value is None and "examples" in described:
        start = f"{' ' * indent}# {key}: {_flow(described['examples'][0])}"
    elif value is None and "default" in described:
        start = f"{' ' * indent}{key}: {_flow(described['default'])}"
    else:
        start = f"{' ' * indent}{key}:" + ("" if value is None else f" {_flow(value)}")
    if not text:
        return [start]
    column = max(COMMENT, len(start) + 2)
    if column > 60:  # too little room beside it
        return [
            *(f"{' ' * indent}# {line}" for line in textwrap.wrap(text, WIDTH - indent - 2)),
            start,
        ]
    first, *rest = textwrap.wrap(text, WIDTH - column - 2, break_long_words=False)
    mark = " " * indent + "#" if start.lstrip().startswith("#") else ""
    return [f"{start:{column}}# {first}", *(f"{mark:{column}}# {line}" for line in rest)]


def reference(properties):
    """docs/config.md."""
    lines = ["# Keys of a config", "", *_wrapped(INTRODUCTION)]
    single = {}
    for section, described in properties.items():
        entries = described.get("additionalProperties")
        if not isinstance(entries, dict):
            single[section] = described
            continue
        lines += [
            "",
            f"## `{section}`",
            "",
            *_wrapped(_sentences(described)),
        ]
        if "required" in entries:
            lines += ["", *_table(entries["properties"], set(entries["required"]))]
        if "examples" in described:
            examples = "".join(described["examples"])
            lines += ["", "```yaml", f"{section}:", textwrap.indent(examples.rstrip(), "  "), "```"]
        if section in BUILT_IN:
            lines += ["", "| built in | options and their defaults | |", "|---|---|---|"]
            lines += map(_row, BUILT_IN[section]().values())
    lines += ["", "## The other keys", "", *_table(single, set())]
    return "\n".join(lines) + "\n"


def commands():
    """docs/commands.md."""
    lines = ["# Commands", "", *_wrapped(OF_COMMANDS)]
    targets = re.match(r"(# .*\n)+", (ROOT / "Makefile").read_text())[0]
    lines += ["", "## `make`", "", "```text", *re.sub("^# ", "", targets, flags=re.M).splitlines()]
    for name in PROGRAMS:
        title = "allcores" if name == "command" else f"scripts/{name}.py"
        program = [sys.executable, ROOT / "scripts" / f"{name}.py", "--help"]
        environment = os.environ | {"COLUMNS": "100"}
        said = subprocess.run(program, env=environment, text=True, capture_output=True, check=True)
        lines += ["```", "", f"## `{title}`", "", "```text", *said.stdout.rstrip().splitlines()]
    return "\n".join([*lines, "```", ""])


def _table(properties, required, above=""):
    rows = [] if above else ["| key | what it means | allowed | default |", "|---|---|---|---|"]
    for key, described in properties.items():
        text = _words(described, default=False).replace("|", "\\|")
        default = "required" if key in required else ""
        if "default" in described:
            default = f"`{_flow(described['default'])}`"
        rows.append(f"| `{above}{key}` | {text} | {_allowed(described)} | {default} |")
        if "properties" in described:
            nested = {k: v for k, v in described["properties"].items() if "description" in v}
            rows += _table(nested, set(described.get("required", [])), f"{above}{key}.")
    return rows


def _row(component):
    """A table's row on a component: its options, and the first paragraph of its docstring."""
    defaults = {
        key: "required" if value is ... else value for key, value in component.options.items()
    }
    options = ", ".join(f"`{key}: {_flow(_plain(value))}`" for key, value in defaults.items())
    text = inspect.getdoc(component.load()) or sys.modules[component.module].__doc__
    first = " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")
    return f"| `{component.name}` | {options} | {first} |"


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


def _allowed(described):
    """What a key may be, as a message would say it."""
    if "enum" in described:
        return " or ".join(f"`{value}`" for value in described["enum"])
    items = described.get("items", {}).get("type")
    if items in ("string", "integer"):
        words = violations.expected(described["items"]).replace("a whole number", "whole numbers")
        return "a list of names" if items == "string" else f"a list of {words}"
    known = {"type", "anyOf", "oneOf", "const", "$ref"} & described.keys()
    return violations.expected(described) if known else ""


def _sentences(described):
    text = _words(described, default=False)
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _words(described, default=True):
    text = " ".join(described.get("description", "").split())
    if default and "default" in described:
        text += f". Default: {_flow(described['default'])}"
    return text


def _built_in(section):
    names = ", ".join(BUILT_IN[section]()) if section in BUILT_IN else ""
    return f"Built in: {names}." if names else ""


def _comment(text):
    return [f"# {line}" for line in _wrapped(text, WIDTH - 2)]


def _wrapped(text, width=WIDTH):
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _flow(value):
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    return re.sub(r"\n\.\.\.$", "", text.strip())


def main():
    described = properties()
    config = yaml.safe_load(CONFIG.read_text())
    CONFIG.write_text(annotated(config, described))
    REFERENCE.write_text(reference(described))
    SCHEMA.write_text(schema())
    COMMANDS.write_text(commands())


if __name__ == "__main__":
    main()
