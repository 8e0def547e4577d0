"""What stands for other entries of models: sweeps and recommendations.

A list where a model's entry takes a value stands for a candidate with each of them. Several lists
are a grid, of which `sample` draws some. Each candidate becomes an entry of its own, labelled by
what varies, and takes the place of the entry in every study.

`recipe: recommended` stands for all that the file of the dataset recommends under RECOMMENDED; what
the entry says itself holds.

All else knows nothing of either.
"""

import copy
import math
import random
import re
import sys
from dataclasses import dataclass

from allcores.study import grid, registry
from allcores.study.grid import SWEPT
from allcores.study.run import digest
from allcores.study.schema import is_integer, listed, mapping

SAMPLE = "sample"
# What an entry says to be filled in, and where the file of a dataset says with what.
RECIPE, RECOMMENDED = ("recipe", "recommended"), "RECOMMENDED"
# What stands for something else than a number, or for how a model computes.
NAMES = ("name", "import", "precision", "memory_format")
LONGEST_LABEL = 60
MOST_CANDIDATES = 10_000  # of an entry


@dataclass(frozen=True)
class Swept:
    """A list in a model's entry.

    Attributes:
        path: its keys in the entry: ("optimizer", "lr").
        values: of which each is a candidate's.
    """

    path: tuple
    values: list

    @property
    def key(self):
        return self.path[-1]


def findings(config):
    """[(path, text), ...] for each list of which no sweep can be made, and for what is not
    recommended."""
    problems = list(_not_recommended(config))
    config = _with_recommended(config)
    for label, entry in mapping(config.get("models")).items():
        lists = list(_lists(label, mapping(entry)))
        problems += _of_lists(label, lists)
        problems += _of_sample(label, lists, mapping(entry).get(SAMPLE))
    return problems or [
        (("models", label), f"a candidate would be called {name!r}, as another model is")
        for label, name in _clashes(config)
    ]


def _of_lists(label, lists):
    for swept in lists:
        path = ("models", label, *swept.path)
        if any(isinstance(value, dict) for value in swept.values):
            yield path, f"found {swept.values}; expected values, not keys and values"
        elif swept.key in NAMES:
            yield path, "names cannot be swept over: give each of them an entry of its own"
        elif not swept.values:
            yield path, "found []; expected a value, or a list of values to sweep over"
        elif len({repr(value) for value in swept.values}) < len(swept.values):
            yield path, f"found {swept.values}; nothing may be listed twice"


def _of_sample(label, lists, sample):
    """Whether as many candidates are asked for as there are, and no more than one can train."""
    path, total = ("models", label, SAMPLE), math.prod(len(swept.values) for swept in lists)
    most = min(total, MOST_CANDIDATES)
    if sample is None:
        if total > most:
            yield path[:2], f"makes {total:,} candidates; draw {most:,} at most by `sample`"
        return
    count = sample.get("count") if isinstance(sample, dict) else sample
    if not lists:
        yield path, "there is no list in this entry to draw from"
    elif not is_integer(count) or not 1 <= count <= most:
        yield path, f"found {sample!r}; expected a number from 1 to {most}, of candidates"
    elif isinstance(sample, dict) and not _is_count_and_seed(sample):
        yield path, f"found {sample!r}; expected a number, or count and a seed"


def _not_recommended(config):
    """(path, text) for each entry that cannot be filled in."""
    for label, entry in mapping(config.get("models")).items():
        if mapping(entry).get(RECIPE[0], RECIPE[1]) != RECIPE[1]:
            yield ("models", label, RECIPE[0]), f"found {entry[RECIPE[0]]!r}; known: {RECIPE[1]}"
    known = registry.datasets()
    fitting = [name for name, found in known.items() if RECOMMENDED in found.constants]
    for label, used in _to_recommend(config).items():
        path = ("models", label, RECIPE[0])
        if used and (len(used) > 1 or used[0] not in fitting):
            yield (
                path,
                f"is used with {', '.join(used)}; expected one dataset of which something was "
                f"measured: {', '.join(fitting)}",
            )
        if {"name", "import"} & set(config["models"][label]):
            yield path, "recommends a model, too; expected no other by `name` or `import`"


def _to_recommend(config):
    """Label of each entry that is to be filled in -> names of the datasets that it is used with."""
    models = mapping(config.get("models")).items()
    labels = [label for label, entry in models if mapping(entry).get(RECIPE[0]) == RECIPE[1]]
    defined = mapping(config.get("datasets"))
    return {
        label: sorted(
            {
                grid.component_name(dataset, mapping(defined.get(dataset)))
                for study in mapping(config.get("studies")).values()
                if label in listed(mapping(study).get("models"))
                for dataset in listed(study.get("datasets"))
            }
        )
        for label in labels
    }


def _with_recommended(config):
    """The config with those entries filled in that can be."""
    to_recommend = _to_recommend(config)
    models = dict(config["models"]) if to_recommend else None
    for label, used in to_recommend.items():
        own = {key: value for key, value in models.pop(label).items() if key != RECIPE[0]}
        dataset = registry.datasets().get(used[0]) if used else None
        if dataset:  # else no study uses it
            models[label] = _merged(dataset.constants.get(RECOMMENDED, {}), own)
    return config | {"models": models} if to_recommend else config


def _merged(recommended, own):
    """An entry's own values hold; an optimizer, say, without a name is the recommended one."""
    found = recommended | own
    for key, value in own.items():
        if isinstance(value, dict) and "name" not in value:
            found[key] = mapping(recommended.get(key)) | value
    return found


def _is_count_and_seed(sample):
    return set(sample) <= {"count", "seed"} and is_integer(sample.get("seed", 0))


def _clashes(config):
    """(label of the entry, label) of each candidate that would be called as another model."""
    models = mapping(config.get("models"))
    taken = set(models)
    for label, entry in models.items():
        found = list(_lists(label, mapping(entry)))
        for values in _drawn(found, entry.get(SAMPLE)) if found else ():
            name = _label(label, found, values)
            if name in taken:
                yield label, name
            taken.add(name)


def resolved(config):
    """(the expanded config, or stand_in() if there are findings, and these); as it is where it is
    no config, which the schema tells."""
    try:
        problems = findings(config)
        return (stand_in(config) if problems else expanded(config)), problems
    except (KeyError, TypeError, AttributeError):
        return config, []


def stand_in(config):
    """A config of whose sweeps one cannot be made, with one candidate in the place of each, to find
    what else is wrong."""
    config = _with_recommended(config)
    models, swept = {}, {}
    for label, entry in mapping(config.get("models")).items():
        lists = [each for each in _lists(label, mapping(entry)) if each.values]
        models[label] = entry
        if lists:
            models[label] = _candidate(entry, label, lists, [each.values[0] for each in lists])
            swept[label] = {"family": label, "values": {}}
    return config | {"models": models, SWEPT: swept}


def expanded(config):
    """The config with what is recommended filled in, and the candidates of its sweeps as entries of
    their own, see SWEPT."""
    config = _with_recommended(config)
    models, swept, labels = {}, {}, {}
    for label, entry in config["models"].items():
        found = list(_lists(label, mapping(entry)))
        if not found:
            models[label], labels[label] = entry, [label]
            continue
        labels[label] = []
        for values in _drawn(found, entry.get(SAMPLE)):
            candidate = _candidate(entry, label, found, values)
            name = _label(label, found, values)
            models[name] = candidate
            labels[label].append(name)
            told = {each.key: value for each, value in zip(found, values, strict=True)}
            swept[name] = {"family": label, "values": told}
    if not swept:
        return config
    studies = {
        name: study
        | {"models": [each for label in study["models"] for each in labels.get(label, [label])]}
        if "models" in mapping(study)
        else study
        for name, study in config["studies"].items()
    }
    return config | {"models": models, "studies": studies, SWEPT: swept}


def family_of(config, label):
    """The label in the config of a model that may be a candidate."""
    return mapping(mapping(config.get(SWEPT)).get(label)).get("family", label)


def _lists(label, entry):
    """The Swept of an entry, in their order."""
    for key, value in entry.items():
        if isinstance(value, list) and not _is_value(_model(label, entry), key, value):
            yield Swept((key,), value)
        elif isinstance(value, dict) and key in ("optimizer", "loss", "augmentation"):
            component = _component(key, value)
            for inner, each in value.items():
                if isinstance(each, list) and not _is_value(component, inner, each):
                    yield Swept((key, inner), each)


def _is_value(component, key, value):
    """Whether a list is a value: an option takes one, and these are not several of them."""
    if value and all(isinstance(each, list) for each in value):
        return False
    if key in grid.HYPERPARAMETERS or component is None:
        return False
    # Where nothing says what an option takes, what the config gives is passed on as it is.
    takes = tuple | list | type(...) | None
    return component.options is None or isinstance(component.options.get(key), takes)


def _model(label, entry):
    try:
        return registry.model(str(grid.model_name(label, entry)))
    except (KeyError, ValueError):
        return None


def _component(key, chosen):
    known = {"optimizer": registry.optimizers, "loss": registry.losses}.get(key, dict)()
    name = registry.canonical(chosen.get("name"), known)
    return known.get(name)


def _drawn(found, sample):
    """The values of each candidate: all combinations, or as many of them as are asked for.

    Combinations are numbered as itertools.product() gives them, and numbers are drawn: there may be
    more of them than a machine has room for.
    """
    total = math.prod(len(swept.values) for swept in found)
    if sample is None:
        return [_combination(found, number) for number in range(total)]
    asked = sample if isinstance(sample, dict) else {"count": sample}
    draws = random.Random(asked.get("seed", 0))
    if total <= sys.maxsize:  # as far as sample() goes
        chosen = draws.sample(range(total), asked["count"])
    else:
        chosen = set()
        while len(chosen) < asked["count"]:
            chosen.add(draws.randrange(total))
    return [_combination(found, number) for number in sorted(chosen)]


def _combination(found, number):
    """The values of the combination with that number, the last list's changing fastest."""
    values = []
    for swept in reversed(found):
        number, position = divmod(number, len(swept.values))
        values.append(swept.values[position])
    return tuple(reversed(values))


def _candidate(entry, label, found, values):
    """The entry with one value in the place of each list."""
    candidate = {key: value for key, value in copy.deepcopy(entry).items() if key != SAMPLE}
    for swept, value in zip(found, values, strict=True):
        inner = candidate
        for key in swept.path[:-1]:
            inner = inner[key]
        inner[swept.key] = value
    if not {"name", "import"} & set(candidate):
        candidate["name"] = label
    return candidate


def _label(label, found, values):
    """The label of a candidate: "lenet-lr0.01-batch_size32"."""
    parts = [f"{each.key}{_text(value)}" for each, value in zip(found, values, strict=True)]
    name = "-".join([label, *parts])
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 9]}-{digest(name)}"


def _text(value):
    if isinstance(value, list):
        return "x".join(map(_text, value))
    return re.sub(r"[^A-Za-z0-9_.-]", "_", str(value))


def candidates(config, family):
    """The labels of the candidates of a family."""
    swept = config.get(SWEPT, {})
    return [label for label, one in swept.items() if one["family"] == family]


def original(config, path):
    """The path in the config of what a path in its expanded form is about.

    Args:
        config: the expanded one.
    """
    if path[:1] == ("models",) and len(path) > 1:
        return ("models", family_of(config, path[1]), *path[2:])
    if SWEPT in mapping(config) and path[2:3] == ("models",):
        return path[:3]
    return path
