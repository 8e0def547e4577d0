"""Check a config before anything starts: a line per finding, with place and remedy.

There are three stages, each of which relies on what the earlier ones have checked; the first that
finds something is the last. Every value is of the kind that settings.py asks for (_of_settings);
every name exists and takes its options (_of_names); the parts of each study fit together, and fit
its data (study_checks.py, fit.py).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any

from allcores_study import yaml_files
from allcores_study.config import (
    component,
    fit,
    grid,
    registry,
    settings,
    study_checks,
    sweeps,
    violations,
)
from allcores_study.config.options import choices
from allcores_study.config.study_checks import SECTIONS, SINGULAR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from allcores_study.config.component import Component
    from allcores_study.yaml_files import Keys, Place, Problem


NUMBER, MOST_ALIKE = re.compile(r"-?\d[\d.e+-]*"), 3
# Key of an entry or of a study that was removed -> what to do instead.
REMOVED = {
    "search": "searches were removed; `sample: 60` draws 60 candidates from the lists and ranges",
}
MOST = 10**18  # larger numbers are hardly meant
AUTO = "auto"  # was a value of these keys -> what to write instead
INSTEAD_OF_AUTO = {
    "precision": "fp32 or bf16; `[fp32, bf16]` in a model's entry compares them",
    "memory_format": "contiguous or channels_last; a list in a model's entry compares them",
    "threads_per_worker": "numbers; with `exclusive: true`, the report says which is fastest",
    "strategies": "strategies; with `exclusive: true`, the report says which is fastest",
}


def findings(
    config: Any,
    files: Iterable[str | Path] = (),
    cores: int | None = None,
    nodes: int | None = None,
    flag: Callable[[int], str] = "--cores {}".format,
) -> list[str]:
    """Return what is wrong with a config, a line per finding; [] if it can be run.

    Args:
        config: the merged config.
        files: the YAML files it was read from, later ones overriding earlier ones; findings give
            file and line.
        cores: number of cores that the runs share on each node; None: unknown.
        nodes: number of nodes; None: unknown.
        flag: function that returns the command-line flag asking for a number of cores.
    """
    lines, repeated = yaml_files.places(files)
    problems = repeated + _of_settings(config)
    if not problems:
        expanded = sweeps.expanded(settings.with_defaults(config))
        problems = list(_of_names(expanded))
        problems = problems or list(study_checks.of_studies(expanded, cores, nodes, flag))
        problems = problems or list(fit.choices_that_differ(expanded))
        problems = [(sweeps.original(expanded, path), text) for path, text in problems]
    return located(problems, lines)


def _of_settings(config: Any) -> list[Problem]:
    """Return problems for keys and values that settings.py rejects, and for invalid sweeps."""
    try:
        of_types, config = list(_check_types(config, ())), _as_json(config)
    except RecursionError:
        return [((), "contains itself, through a YAML anchor; remove that reference")]
    models = _entries(config, "models")
    told = [*of_types, *_removed(config), *sweeps.problems(models)]
    # Without the keys that _check_types() reports, an entry may lack what it has.
    paths = {path for path, _ in told}
    wrong = {path[1] for path in paths if path[:1] == ("models",) and len(path) > 1}
    sound = {label: entry for label, entry in models.items() if label not in wrong}
    expanded = sweeps.expanded({"models": sound, "studies": {}})
    if models:
        others = {label: one for label, one in config["models"].items() if label not in sound}
        config = config | {"models": expanded["models"] | others}
    by_models = (
        (sweeps.original(expanded, path), text) for path, text in violations.problems(config)
    )
    return told + [
        (path, text)
        for path, text in by_models
        if paths.isdisjoint(path[:end] for end in range(1, len(path) + 1))
    ]


def _removed(config: Any) -> Iterator[Problem]:
    """Yield a problem for each key and value that this version no longer has."""
    places: list[tuple[Keys, dict[str, Any]]] = []
    if isinstance(config, dict):
        places.append(((), config))
    for section in ("models", "studies"):
        places += [((section, label), one) for label, one in _entries(config, section).items()]
    for path, entry in places:
        yield from (((*path, key), REMOVED[key]) for key in REMOVED if path and key in entry)
        for key, instead in INSTEAD_OF_AUTO.items():
            if AUTO in (value if isinstance(value := entry.get(key), list) else [value]):
                yield (*path, key), f"`auto` was removed; write {instead}"


def _check_types(value: Any, path: Keys) -> Iterator[Problem]:
    """Yield problems for keys that are no texts, dates, sets, and huge or infinite numbers."""
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
    elif isinstance(value, int) and abs(value) >= MOST:
        yield path, f"found a number of {len(str(value))} digits; expected one below {MOST:g}"
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, f"found {value}; expected a finite number"
    elif not isinstance(value, str | int | float | None):
        kind = type(value).__name__
        yield (
            path,
            f"found a {kind}; expected a text (in quotes), a number, true, false, a list or keys",
        )


def _as_json(value: Any) -> Any:
    """Return a config without the keys that are no texts."""
    if isinstance(value, dict):
        return {key: _as_json(child) for key, child in value.items() if isinstance(key, str)}
    if isinstance(value, list):
        return [_as_json(child) for child in value]
    return value


def _entries(config: Any, section: str) -> dict[str, dict[str, Any]]:
    """Return the entries in a section of anything read as a config, if they are mappings."""
    found = config.get(section) if isinstance(config, dict) else None
    found = found if isinstance(found, dict) else {}
    return {label: entry for label, entry in found.items() if isinstance(entry, dict)}


def _of_names(config: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each name in an entry or a study that does not exist."""
    for section in SECTIONS:
        for label, entry in config.get(section, {}).items():
            yield from _check_entry(section, label, dict(entry or {}))
    for label, entry in config["models"].items():
        yield from _check_model(("models", label), label, entry)
    yield from study_checks.unknown_labels(config)


def located(problems: Iterable[Problem], lines: dict[Keys, Place]) -> list[str]:
    """Return a line for each problem, with file and line where they are known.

    Of problems that differ only in a number, as for candidates drawn from a range, the first few
    get a line each, the others one line together.
    """
    placed = sorted(
        (
            yaml_files.place(path, lines),
            ".".join(map(str, path)) or "the config",
            _as_one_line(text),
        )
        for path, text in problems
    )
    alike: dict[tuple[Place, str, str], list[str]] = defaultdict(list)
    for (file, line), where, text in dict.fromkeys(placed):
        start = f"{file}:{line}: {where}" if file else where
        told = alike[(file, line), where, NUMBER.sub("", text)]
        told.append(f"{start}: {text}" if len(told) < MOST_ALIKE else start)
    return list(chain(*map(_cut, alike.values())))


def _cut(told: list[str]) -> list[str]:
    """Return the first lines; one more counts the others."""
    more = len(told) - MOST_ALIKE
    return told if more < 1 else [*told[:MOST_ALIKE], f"{told[-1]}: ... and {more} more like this"]


def _as_one_line(text: str) -> str:
    """Return the text with unprintable characters, such as line breaks, as spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _check_entry(section: str, label: str, entry: dict[str, Any]) -> Iterator[Problem]:
    """Check the name and the options of an entry."""
    components, name = SECTIONS[section](), grid.component_name(label, entry)
    entry.pop("name", None)
    if name not in [*components]:
        yield (section, label), f"unknown {SINGULAR[section]} {name!r}; {choices(name, components)}"
    else:
        yield from components[name].problems((section, label), entry)


def _check_model(path: Keys, label: str, entry: dict[str, Any]) -> Iterator[Problem]:
    name = grid.model_name(label, entry)
    try:
        model = registry.model(name)
    except KeyError:
        if "import" in entry:
            yield (*path, "import"), f"found {name!r}; expected package.module:Name"
        else:
            yield path, f"unknown model {name!r}; {choices(name, registry.models())}"
    except ValueError as error:
        yield (*path, "import"), str(error)
    else:
        if model.is_estimator:
            if "name" in entry:
                yield (*path, "name"), "conflicts with `import`; expected one of them"
            yield from _check_estimator(path, entry, model.options)
            return
        yield from _check_model_options(path, entry, model)
    if "import" in entry and "name" in entry:
        yield (*path, "name"), "conflicts with `import`; expected one of them"
    if "patience" in entry and "validation" not in entry:
        yield (*path, "patience"), "needs `validation`, whose loss it watches"
    yield from _check_own(path, entry)
    for key, components in (("optimizer", registry.optimizers()), ("loss", registry.losses())):
        settings = dict(entry.get(key, {}))
        if "name" not in settings:
            continue
        spelling = settings.pop("name")
        if found := registry.canonical(spelling, components):
            yield from components[found].problems((*path, key), settings)
            yield from _check_lengths((*path, key), settings, components[found])
        else:
            problem = f"unknown {key} {spelling!r}; {choices(spelling, components)}"
            yield (*path, key, "name"), problem


def _check_model_options(path: Keys, entry: dict[str, Any], model: Component) -> Iterator[Problem]:
    """Check the options of a network, which stand in its entry or, nested, under OPTIONS."""
    nested, options = entry.get(grid.OPTIONS, {}), grid.model_options(entry)
    known = [*(model.options or {})]
    unknown = model.unknown(options)
    for key in unknown & nested.keys():
        yield (*path, grid.OPTIONS, key), f"unknown key; {choices(key, known)}"
    known += [*sorted(grid.HYPERPARAMETERS), grid.OPTIONS, sweeps.SAMPLE]
    for key in unknown - nested.keys():
        yield (*path, key), f"unknown key; {choices(key, known)}{_of_optimizer(key, entry)}"
    fitting = {key: value for key, value in options.items() if key not in unknown}
    for where, problem in model.problems(path, fitting):
        inside = where[len(path) :]
        if not inside:  # an option is missing
            yield path, problem + _of_same_name(model, nested)
        else:
            yield (*path, *([grid.OPTIONS] if inside[0] in nested else []), *inside), problem


def _check_lengths(path: Keys, settings: dict[str, Any], component: Component) -> Iterator[Problem]:
    """Check that lists of an optimizer, such as Adam's betas, are as long as their defaults."""
    for key, value in settings.items():
        default = (component.options or {}).get(key)
        if isinstance(default, tuple) and isinstance(value, list) and len(value) != len(default):
            yield (
                (*path, key),
                f"found {value!r}; expected {len(default)} values, like {list(default)}",
            )


def _of_optimizer(key: str, entry: dict[str, Any]) -> str:
    """Return a hint if an unknown key of an entry is an option of its optimizer."""
    key = {"learning_rate": "lr"}.get(key, key)
    name = registry.canonical(entry["optimizer"]["name"], registry.optimizers())
    is_option = name is not None and key in (registry.optimizers()[name].options or ())
    return f"; for the optimizer, write `optimizer: {{{key}: ...}}`" if is_option else ""


def _of_same_name(model: Component, nested: dict[str, Any]) -> str:
    """Return a hint on how to set a model's options that are named like other keys of its entry."""
    needed = [key for key, default in (model.options or {}).items() if default is ...]
    names = sorted(grid.HYPERPARAMETERS & {*needed} - {*nested})
    if not names:
        return ""
    return f"; write `{grid.OPTIONS}: {{{names[0]}: ...}}`: elsewhere the key is about training"


def _check_own(path: Keys, entry: dict[str, Any]) -> Iterator[Problem]:
    """Check the user's own loss and augmentation, given by import path, and their options."""
    for key, kind, others in (
        ("loss", "losses", ("name",)),
        ("augmentation", "augmentations", grid.BUILT_IN_AUGMENTATION),
    ):
        settings = dict(entry.get(key, {}))
        found = settings.pop("import", None)
        if found is None:
            if key == "loss" and "loss" in entry and "name" not in settings:
                yield (*path, key), "lacks name or import"
            for name in sorted(set(settings) - set(others)) if key == "augmentation" else ():
                yield (*path, key, name), f"unknown key; {choices(name, ['import', *others])}"
            continue
        if "name" in settings:
            yield (*path, key, "name"), "conflicts with `import`; expected one of them"
        own = {name: value for name, value in settings.items() if name not in others}
        try:
            own_component = component.imported(str(found), kind)
        except ValueError as error:
            yield (*path, key, "import"), str(error)
        else:
            yield from own_component.problems((*path, key), own, ("import", *others))


def _check_estimator(
    path: Keys, entry: dict[str, Any], known: dict[str, Any] | None
) -> Iterator[Problem]:
    """Check which options an estimator is given; scikit-learn checks their values itself.

    Args:
        known: option -> default; None: unknown.
    """
    given = {"n_jobs": "threads_per_worker", "random_state": "seeds"}
    options = [key for key in entry if key not in grid.ESTIMATOR_KEYS]
    for key in options:
        if key in given:
            yield (*path, key), f"is set by `{given[key]}` of a study; remove it here"
        elif known is not None and key not in known:
            problem = f"unknown key; {choices(key, known)}"
            if key in grid.HYPERPARAMETERS:
                problem = "has no meaning for an estimator, which trains itself; remove it"
            yield (*path, key), problem
    missing = [key for key, default in (known or {}).items() if default is ... and key not in entry]
    if missing:
        yield path, f"lacks {', '.join(missing)}"
