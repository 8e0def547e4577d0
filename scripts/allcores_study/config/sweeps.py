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

from allcores.options import is_integer
from allcores_study.config import grid, ranges, registry
from allcores_study.config.candidates import FIRST
from allcores_study.config.run import digest
from allcores_study.config.schema import SWEPT, WRITTEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from allcores_study.config.component import Component
    from allcores_study.yaml_files import Keys, Problem


KEYS = SAMPLE, SEARCH = "sample", "search"
SAMPLERS = ("tpe",)
AT_ONCE = 8  # candidates that are suggested together
MOST_ROUNDS = 100  # of a search: their jobs wait for each other; Snakemake plans all at once
# Keys whose values are names, which cannot be swept over.
NAMES = ("name", "import")
LONGEST_LABEL = 60
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
        check = _check_search if SEARCH in entry else _check_sample
        found += of_lists or check(label, lists, entry)
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
        elif not swept.found:
            yield path, "found []; expected a value, or a list of values to sweep over"
        elif len({repr(value) for value in swept.found}) < len(swept.found):
            yield path, f"found {swept.found}; nothing may be listed twice"


def _check_sample(
    label: str, lists: Sequence[ranges.Swept], entry: dict[str, Any]
) -> Iterator[Problem]:
    """Check that `sample` draws no more candidates than there are or can be trained."""
    path, total = ("models", label, SAMPLE), math.prod(swept.axis.count for swept in lists)
    most, sample = min(total, MOST_CANDIDATES), entry.get(SAMPLE)
    if sample is None:
        if any(swept.axis.is_continuous for swept in lists):
            yield (
                path[:2],
                "has a range without steps; add `sample`, a number of candidates, or `search`",
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


def _check_search(
    label: str, lists: Sequence[ranges.Swept], entry: dict[str, Any]
) -> Iterator[Problem]:
    """Check that `search` has candidates to suggest by the scores of earlier ones."""
    path, search = ("models", label, SEARCH), entry[SEARCH]
    known = ("sampler", "trials", "at_once", "seed")
    most = min(math.prod(swept.axis.count for swept in lists), MOST_CANDIDATES)
    if SAMPLE in entry:
        yield path, f"conflicts with `{SAMPLE}`; expected one of them"
    elif not lists:
        yield path, "there is no list or range in this entry to search"
    elif not isinstance(search, dict) or not {"sampler", "trials"} <= set(search) <= set(known):
        yield path, f"found {search!r}; expected sampler, trials, optionally at_once and seed"
    elif search["sampler"] not in SAMPLERS:
        yield (*path, "sampler"), f"found {search['sampler']!r}; known: {', '.join(SAMPLERS)}"
    elif not is_integer(at_once := search.get("at_once", AT_ONCE)) or at_once < 1:
        yield (*path, "at_once"), f"found {at_once!r}; expected a whole number from 1"
    elif not ranges.is_seed(search.get("seed", 0)):
        yield (*path, "seed"), f"found {search['seed']!r}; expected a whole number from 0"
    elif most <= (drawn := max(FIRST, at_once)):
        remedy = "widen them" if most <= FIRST else "lower `at_once`"
        yield (
            path,
            f"needs more than the {drawn} candidates that are drawn before any is suggested; the "
            f"lists and ranges give {most:,}; remove `search` to train all, or {remedy}",
        )
    elif not is_integer(trials := search["trials"]) or not drawn < trials <= most:
        yield (
            (*path, "trials"),
            f"found {trials!r}; expected more than the {drawn} that are drawn before "
            f"any is suggested, and at most {most:,}, since none is trained twice",
        )
    elif at_once < (least := math.ceil((trials - FIRST) / MOST_ROUNDS)):
        text = f"found {at_once}; expected at least {least}, for at most {MOST_ROUNDS} rounds"
        yield (*path, "at_once"), text


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


def trials_named(config: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each trial of a search that a study names, in a config as written."""
    searches = {
        f"{label}-trial": label for label, entry in config["models"].items() if SEARCH in entry
    }
    for study, settings in config["studies"].items():
        for position, name in enumerate(settings["models"]):
            stem = name.rstrip("0123456789")
            if stem in searches and stem != name:
                yield (
                    ("studies", study, "models", position),
                    f"{name} is a trial of a search, whose values are not known beforehand; "
                    f"expected {searches[stem]}",
                )


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
            if SEARCH in entry:
                swept[name] |= {"search": _search(entry[SEARCH], lists, values)}
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
    """Return (label, values) of each candidate of an entry.

    Those of a search are also drawn: they stand in for the ones that will be suggested. The last
    ones are the ends of all ranges, so that these are checked and smoke-tested as well.
    """
    if search := entry.get(SEARCH):
        drawn = ranges.spread(lists, search["trials"], search.get("seed", 0))
        first = max(FIRST, search.get("at_once", AT_ONCE))
        drawn[first:] = [*drawn[first:], *ranges.ends(lists)][first - len(drawn) :]
        return [(f"{label}-trial{number}", values) for number, values in enumerate(drawn, 1)]
    drawn = ranges.draw(lists, entry.get(SAMPLE))
    return [(_label(label, lists, values), values) for values in drawn]


def _search(
    settings: dict[str, Any], lists: Sequence[ranges.Swept], values: Sequence[Any]
) -> dict[str, Any]:
    """Return what candidates.Search.of() reads from a candidate."""
    return {
        "space": {swept.name: swept.found for swept in lists},
        "values": {swept.name: value for swept, value in zip(lists, values, strict=True)},
        "at_once": settings.get("at_once", AT_ONCE),
        "seed": settings.get("seed", 0),
    }


def candidate(
    config: dict[str, Any], family: str, values: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return (a label by its values, the entry) of a candidate for which values were suggested.

    Args:
        config: the expanded one.
        values: name of each searched key -> value.
    """
    entry = config[WRITTEN][family]
    lists = list(_lists(family, entry))
    in_order = [values[swept.name] for swept in lists]
    return _label(family, lists, in_order), _candidate(entry, family, lists, in_order)


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
    """Return how the candidates of an entry with `sample` or `search` are drawn, in words."""
    if search := entry.get(SEARCH):
        first = max(FIRST, search.get("at_once", AT_ONCE))
        return (
            f", the first {first} drawn by a scrambled Sobol sequence, the others suggested by "
            f"Optuna's tree-structured Parzen estimator (seed {search.get('seed', 0)})"
        )
    has_range = any(isinstance(swept.found, dict) for swept in _lists("", entry))
    how = "from ranges by a scrambled Sobol sequence" if has_range else "at random from a grid"
    seed = entry[SAMPLE].get("seed", 0) if isinstance(entry[SAMPLE], dict) else 0
    return f", drawn {how} (seed {seed})"


def _candidate(
    entry: dict[str, Any], label: str, lists: Sequence[ranges.Swept], values: Sequence[Any]
) -> dict[str, Any]:
    """Return the entry with one value in place of each list."""
    candidate = {key: value for key, value in copy.deepcopy(entry).items() if key not in KEYS}
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
