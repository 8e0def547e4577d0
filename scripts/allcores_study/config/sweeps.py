"""Expand sweeps in the entries of models.

A list where a model's entry takes one value is a sweep, with a candidate for each value. Several
lists are a grid, from which `sample` draws some candidates; it also draws from ranges, see
ranges.py. Each candidate becomes a new entry, labelled by the values that vary, and replaces the
original entry in every study.

The other modules only see the expanded entries.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from allcores_study.config import grid, ranges, registry
from allcores_study.config.options import is_integer
from allcores_study.config.run import digest
from allcores_study.config.settings import LONGEST_LABEL, SWEPT, WRITTEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from allcores_study.config.component import Component
    from allcores_study.yaml_files import Keys, Problem


SAMPLE = grid.SAMPLE
# Keys whose values are names, which cannot be swept over.
NAMES = ("name", "import")
# Keys in mappings of an entry that take one value; others are options of a component.
ONE_VALUE = {
    *(("optimizer", "lr"), ("loss", "label_smoothing")),
    *(("augmentation", "crop"), ("augmentation", "flip")),
}
MOST_CANDIDATES = 10_000  # of an entry


def problems(models: dict[str, dict[str, Any]]) -> list[Problem]:
    """Return a problem for each list or range that is not a valid sweep.

    Args:
        models: label -> entry.
    """
    found: list[Problem] = []
    for label, entry in models.items():
        lists = list(_lists(label, entry))
        of_lists = list(_check_lists(label, lists))
        found += of_lists or _check_sample(label, lists, entry)
    return found or [
        (("models", label), f"a candidate would be called {name!r}, like another model; rename one")
        for label, name in _clashes(models)
    ]


def _check_lists(label: str, lists: Sequence[ranges.Swept]) -> Iterator[Problem]:
    for swept in lists:
        path = ("models", label, *swept.path)
        if swept.key in NAMES:
            yield path, "a sweep cannot list names; add one entry per name"
        elif isinstance(swept.found, dict):
            if problem := ranges.problem(swept.found):
                yield path, problem
        elif any(isinstance(value, dict) for value in swept.found):
            problem = "a sweep cannot list keys and values; add one entry for each"
            yield path, f"found {swept.found}; {problem}"
        elif _takes_one(swept.path) and any(isinstance(value, list) for value in swept.found):
            yield path, f"found {swept.found}; expected a value, or a list of values to sweep over"
        elif not swept.found:
            yield path, "found []; expected a value, or a list of values to sweep over"
        elif len({repr(value) for value in swept.found}) < len(swept.found):
            yield path, f"found {swept.found}; nothing may be listed twice"


def _takes_one(path: tuple[str, ...]) -> bool:
    """Return whether a key of an entry takes one value, which is no list."""
    return path[0] in grid.HYPERPARAMETERS if len(path) == 1 else path in ONE_VALUE


def _check_sample(
    label: str, lists: Sequence[ranges.Swept], entry: dict[str, Any]
) -> Iterator[Problem]:
    """Check that `sample` draws no more candidates than there are or can be trained."""
    path, total = ("models", label, SAMPLE), math.prod(swept.axis.count for swept in lists)
    most, sample = int(min(total, MOST_CANDIDATES)), entry.get(SAMPLE)
    if sample is None:
        if any(swept.axis.is_continuous for swept in lists):
            yield (
                path[:2],
                "has a range without steps; add `sample`, a number of candidates",
            )
        elif total > most:
            yield path[:2], f"makes {total:,} candidates; draw at most {most:,} with `sample`"
        return
    count: Any = sample.get("count") if isinstance(sample, dict) else sample
    if not lists:
        yield path, "there is no list or range in this entry to draw from"
    elif not is_integer(count) or not 1 <= count <= most:
        yield path, f"found {sample!r}; expected a number of candidates from 1 to {most}"
    elif isinstance(sample, dict) and not _is_count_and_seed(sample):
        yield path, f"found {sample!r}; expected a number, or a count and a seed from 0"
    elif not any(swept.found == [] for swept in lists):
        found = len(ranges.draw(lists, sample))
        if found < count:
            yield path, f"found {sample!r}; the lists and ranges give only {found} different ones"


def _is_count_and_seed(sample: dict[str, Any]) -> bool:
    return set(sample) <= {"count", "seed"} and ranges.is_seed(sample.get("seed", 0))


def _clashes(models: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (label of the entry, label) of each candidate with the label of another model."""
    labels = set(models)
    for label, entry in models.items():
        lists = list(_lists(label, entry))
        for name, _ in _drawn(label, entry, lists) if lists else ():
            if name in labels:
                yield label, name
            labels.add(name)


def expanded(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config with an entry for each candidate of its sweeps, see SWEPT and WRITTEN."""
    models, swept, labels, written = {}, {}, {}, {}
    for label, entry in config["models"].items():
        lists = list(_lists(label, entry))
        if not lists:
            models[label], labels[label] = entry, [label]
            continue
        labels[label], written[label] = [], entry
        for name, values in _drawn(label, entry, lists):
            models[name] = _candidate(entry, label, lists, values)
            labels[label].append(name)
            keys = ranges.short_names([sweep.name for sweep in lists])
            swept[name] = {"family": label, "values": dict(zip(keys, values, strict=True))}
    if not swept:
        return config
    studies = {
        name: study
        | {"models": [one for label in study["models"] for one in labels.get(label, [label])]}
        for name, study in config["studies"].items()
    }
    return config | {"models": models, "studies": studies, SWEPT: swept, WRITTEN: written}


def _drawn(
    label: str, entry: dict[str, Any], lists: Sequence[ranges.Swept]
) -> list[tuple[str, tuple[Any, ...]]]:
    """Return (label, values) of each candidate of an entry."""
    drawn = ranges.draw(lists, entry.get(SAMPLE))
    return [(_label(label, lists, values), values) for values in drawn]


def family_of(config: dict[str, Any], label: str) -> str:
    """Return the label in the config of a model, which may be a candidate of a sweep."""
    return config.get(SWEPT, {}).get(label, {}).get("family", label)


def _lists(label: str, entry: dict[str, Any]) -> Iterator[ranges.Swept]:
    """Yield the Swept lists and ranges of an entry, in their order."""
    for key, value in entry.items():
        is_list = isinstance(value, list) and not _is_value(_model(label, entry), key, value)
        if is_list or ranges.is_range(value):
            yield ranges.Swept((key,), value)
        elif isinstance(value, dict) and key in ("optimizer", "loss", "augmentation"):
            component = _component(key, value)
            for inner, option in value.items():
                is_list = isinstance(option, list) and not _is_value(component, inner, option)
                if is_list or ranges.is_range(option):
                    yield ranges.Swept((key, inner), option)


def _is_value(component: Component | None, key: str, value: list[Any]) -> bool:
    """Return whether a list is one value, of an option that takes lists, not a sweep."""
    if value and all(isinstance(element, list) for element in value):
        return False
    if key in grid.HYPERPARAMETERS or component is None:
        return False
    if component.is_estimator and component.options and component.options.get(key) is None:
        return False  # their None stands for unlimited numbers
    if key in component.supplied:
        return key in ("shape", "image_size")
    if isinstance(component.constants.get("ALLOWED", {}).get(key), tuple):
        return False  # one of those
    # Where nothing shows what an option takes, the list is passed on as it is.
    takes = tuple | list | type(...) | None
    return component.options is None or isinstance(component.options.get(key), takes)


def _model(label: str, entry: dict[str, Any]) -> Component | None:
    try:
        return registry.model(str(grid.model_name(label, entry)))
    except (KeyError, ValueError):
        return None


def _component(key: str, entry: dict[str, Any]) -> Component | None:
    components = {"optimizer": registry.optimizers, "loss": registry.losses}.get(key, dict)()
    return components.get(registry.canonical(entry.get("name"), components) or "")


def how_drawn(entry: dict[str, Any]) -> str:
    """Return how the candidates of an entry with `sample` are drawn, in words."""
    seed = entry[SAMPLE].get("seed", 0) if isinstance(entry[SAMPLE], dict) else 0
    return f", drawn by a scrambled Sobol sequence (seed {seed})"


def _candidate(
    entry: dict[str, Any], label: str, lists: Sequence[ranges.Swept], values: Sequence[Any]
) -> dict[str, Any]:
    """Return the entry with one value in place of each list."""
    candidate = {key: value for key, value in copy.deepcopy(entry).items() if key != SAMPLE}
    for swept, value in zip(lists, values, strict=True):
        inner = candidate
        for key in swept.path[:-1]:
            inner = inner[key]
        inner[swept.key] = value
    if not {"name", "import"} & set(candidate):
        candidate["name"] = label
    return candidate


def _label(label: str, lists: Sequence[ranges.Swept], values: Sequence[Any]) -> str:
    """Return the label of a candidate: "lenet-lr0.01-batch_size32"."""
    parts = [
        f"{sweep.key}{ranges.text_of(value)}" for sweep, value in zip(lists, values, strict=True)
    ]
    name = "-".join([label, *parts])
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 9]}-{digest(name)}"


def candidates(config: dict[str, Any], family: str) -> list[str]:
    """Return the labels of the candidates of a family."""
    swept = config.get(SWEPT, {})
    return [label for label, candidate in swept.items() if candidate["family"] == family]


def original(config: Any, path: Keys) -> Keys:
    """Return the path in the config as written for a path in the expanded config.

    Args:
        config: the expanded one.
    """
    if path[:1] == ("models",) and len(path) > 1:
        return ("models", family_of(config, path[1]), *path[2:])
    if SWEPT in config and path[2:3] == ("models",):
        return path[:3]
    return path
