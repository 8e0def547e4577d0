"""Check a config before anything starts: a line per finding, with its place and the remedy."""

import difflib
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator

from allcores import registry, study

SCHEMA = registry.LIBRARY.parents[1] / "workflow" / "schemas" / "config.schema.yaml"
SECTIONS = {
    "datasets": registry.datasets,
    "schedules": registry.schedules,
    "strategies": registry.strategies,
}
SINGULAR = {
    "datasets": "dataset",
    "models": "model",
    "schedules": "schedule",
    "strategies": "strategy",
}


def findings(config, files=(), cores=None):
    """What is wrong with a config, one line each; nothing if it can be run.

    Args:
        config: the merged config.
        files: the YAML files it came from, later ones on top: a line names file and line.
        cores: that the runs will be packed onto; None: unknown.
    """
    found = [*_of_schema(config), *_of_entries(config), *_of_studies(config, cores)]
    lines = _line_numbers(files)
    placed = {
        (_place(path, lines), ".".join(map(str, path)) or "the config", text)
        for path, text in found
    }
    return [
        f"{file}:{line}: {where}: {text}" if file else f"{where}: {text}"
        for (file, line), where, text in sorted(placed)
    ]


def typed(config):
    """The config with every text that spells a number or a truth value turned into that."""
    if isinstance(config, dict):
        return {key: typed(value) for key, value in config.items()}
    if isinstance(config, list):
        return [typed(value) for value in config]
    if isinstance(config, str):
        value = yaml.safe_load(config)
        return value if isinstance(value, int | float) else config
    return config


def _of_schema(config):
    validator = Draft202012Validator(yaml.safe_load(SCHEMA.read_text()))
    for error in validator.iter_errors(config):
        yield from _explain(error)


def _explain(error):
    """A schema violation in the words of a config's author."""
    path = tuple(error.absolute_path)
    if error.validator == "additionalProperties":
        known = sorted(error.schema["properties"])
        for key in sorted(set(error.instance) - set(known)):
            yield (*path, key), f"unknown key; {_choices(key, known)}"
    elif error.validator == "required":
        missing = [key for key in error.validator_value if key not in error.instance]
        yield path, f"lacks {', '.join(missing)}"
    elif error.validator in ("anyOf", "const"):
        allowed = " or ".join(_expected(schema) for schema in error.validator_value)
        yield path, f"found {error.instance!r}; expected {allowed}"
    elif error.validator == "enum":
        yield path, f"found {error.instance!r}; {_choices(error.instance, error.validator_value)}"
    elif error.validator == "pattern":
        yield path, f"found {error.instance!r}; a label has letters, digits, _, - and . only"
    elif error.validator == "uniqueItems":
        yield path, f"found {error.instance!r}; nothing may be listed twice"
    else:
        is_text = isinstance(error.instance, str) and error.schema.get("type") == "number"
        hint = _number_hint(error.instance) if is_text else ""
        yield path, f"found {error.instance!r}; expected {_expected(error.schema)}{hint}"


def _expected(schema):
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
    for key, words in (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "up to")):
        if key in schema:
            text += f" {words} {schema[key]}"
    return text


def _number_hint(value):
    """What to write instead of 1e-3, which YAML 1.1 reads as text."""
    try:
        return f"; YAML reads that as text: write {float(value)!r}"
    except ValueError:
        return ""


def _choices(given, known):
    by_lower_case = {str(name).lower(): name for name in known}
    close = difflib.get_close_matches(str(given).lower(), by_lower_case, n=1)
    meant = f" (did you mean {by_lower_case[close[0]]}?)" if close else ""
    return f"known: {', '.join(map(str, known)) or 'none'}{meant}"


def _mapping(value):
    """The value if it is a mapping, else an empty one: the schema has told the rest."""
    return value if isinstance(value, dict) else {}


def _list(value):
    return value if isinstance(value, list) else []


def _of_entries(config):
    """Names and options in the sections datasets, schedules, strategies and models."""
    for section, known in SECTIONS.items():
        for label, entry in _mapping(config.get(section)).items():
            entry = dict(_mapping(entry))
            path = (section, label)
            name = entry.pop("name", label)
            if name not in known():
                yield path, f"unknown {SINGULAR[section]} {name!r}; {_choices(name, known())}"
            else:
                yield from _of_options(path, entry, known()[name])
            if section == "datasets" and "path" in entry and not Path(entry["path"]).exists():
                yield (*path, "path"), f"there is no {entry['path']} (from {Path.cwd()})"
    for label, entry in _mapping(config.get("models")).items():
        yield from _of_model(("models", label), label, _mapping(entry))


def _of_model(path, label, entry):
    name = study.model_name(label, entry)
    try:
        component = registry.model(str(name))
    except KeyError:
        yield path, f"unknown model {name!r}; {_choices(name, registry.models())}"
    except ValueError as error:
        yield (*path, "import"), f"{name} {error}"
    else:
        own = {"name", "import"} | study.HYPERPARAMETERS
        yield from _of_options(path, {k: v for k, v in entry.items() if k not in own}, component)
    for key, known in (("optimizer", registry.optimizers()), ("loss", registry.losses())):
        chosen = dict(_mapping(entry.get(key)))
        if "name" not in chosen:
            continue
        given = chosen.pop("name")
        name = registry.canonical(given, known)
        if name is None:
            yield (*path, key, "name"), f"unknown {key} {given!r}; {_choices(given, known)}"
        else:
            yield from _of_options((*path, key), chosen, known[name])


def _of_options(path, given, component):
    """Options against the signature of what they are given to."""
    if component.options is None:
        return
    for key, value in given.items():
        if key not in component.options:
            yield (*path, key), f"unknown key; {_choices(key, component.options)}"
        elif isinstance(value, str) and isinstance(component.options[key], int | float):
            yield (*path, key), f"found the text {value!r}; expected a number{_number_hint(value)}"
        else:
            yield from _of_allowed(
                (*path, key), value, component.constants.get("ALLOWED", {}).get(key)
            )
    missing = [k for k, default in component.options.items() if default is ... and k not in given]
    if missing:
        yield path, f"lacks {', '.join(missing)}"


def _of_allowed(path, value, allowed):
    """A value against what its component's file says: one of a tuple, or a number from this on."""
    if isinstance(allowed, tuple) and value not in allowed:
        yield path, f"found {value!r}; {_choices(value, allowed)}"
    elif isinstance(allowed, int) and (not isinstance(value, int) or value < allowed):
        yield path, f"found {value!r}; expected a whole number from {allowed}"


def _of_studies(config, cores):
    for name, given in _mapping(config.get("studies")).items():
        given = study.STUDY_DEFAULTS | _mapping(given)
        yield from _of_study(config, ("studies", name), given, cores)


def _of_study(config, path, given, cores):
    sound = True
    for section, known in {**SECTIONS, "models": dict}.items():
        defined = _mapping(config.get(section))
        for position, label in enumerate(_list(given.get(section))):
            if label not in defined and label not in known():
                sound = False
                yield (*path, section, position), _unknown_label(section, label, defined, known())
    baseline = given.get("baseline")
    if baseline is not None and baseline not in _list(given["strategies"]):
        yield (*path, "baseline"), f"found {baseline!r}; {_choices(baseline, given['strategies'])}"
    yield from _of_keys(config, path, given)
    if sound:
        yield from _of_batches(config, path, given)
        yield from _of_optimizers(config, path, given)
        yield from _of_splits(config, path, given)
        yield from _of_cores(config, path, given, cores or float("inf"))


def _unknown_label(section, label, defined, known):
    hint = ""
    if section == "models" and label in registry.models():
        hint = "; give it an entry in `models`, with its batch_size, epochs and optimizer"
    return f"unknown {SINGULAR[section]} {label!r}; {_choices(label, [*defined, *known])}{hint}"


def _of_batches(config, path, given):
    """Every worker has to get a part of every full batch."""
    most = max((workers for _, workers, _, _ in _ways(config, given)), default=1)
    for position, label in enumerate(_list(given.get("models"))):
        batch_size = _mapping(_mapping(config.get("models")).get(label)).get("batch_size")
        if isinstance(batch_size, int) and 0 < batch_size < most:
            yield (
                (*path, "models", position),
                f"the batch of {batch_size} of {label!r} cannot be shared by {most} "
                f"workers; expected batch_size of at least {most}",
            )


def _of_optimizers(config, path, given):
    """A strategy that updates slices of one vector cannot serve an optimizer that needs shapes."""
    for position, label in enumerate(_list(given["strategies"])):
        strategy = registry.strategies()[study.choice(config, "strategies", label).name]
        if not strategy.constants.get("element_wise"):
            continue
        for model in _list(given.get("models")):
            entry = _mapping(_mapping(config.get("models")).get(model))
            chosen = _mapping(entry.get("optimizer")).get("name")
            name = registry.canonical(chosen, registry.optimizers())
            if name in registry.WHOLE_TENSOR_OPTIMIZERS:
                yield (
                    (*path, "strategies", position),
                    f"{label} treats every weight alone, which {name} of {model!r} does not; "
                    "expected another strategy or another optimizer",
                )


def _ways(config, given):
    """study.ways() of what is sound in a study; `auto` takes one thread at least."""
    counts = {
        key: [count for count in _list(given[key]) if isinstance(count, int) and count > 0]
        for key in ("workers", "threads_per_worker", "cores")
        if key in given
    }
    counts["threads_per_worker"] = counts["threads_per_worker"] or [1]
    return list(study.ways(config, given | counts))


def _of_cores(config, path, given, cores):
    """Snakemake would run what is too large on fewer cores, and tables would not say so."""
    key = "cores" if "cores" in given else "workers"
    for strategy, workers, servers, threads in _ways(config, given):
        needed = (workers + servers) * threads
        if workers < 1:
            yield (
                (*path, key),
                f"{strategy.label} has {servers} servers, which leaves no core for a worker: "
                f"expected {servers + 1} at least",
            )
        elif needed > cores and not given["oversubscribe"]:
            yield (
                (*path, key),
                f"{strategy.label} with {workers} workers"
                f"{f' and {servers} servers' if servers else ''} x {threads} threads needs "
                f"{needed} cores; this call has {cores}: give it --cores {needed}, or ask for "
                "fewer workers or threads",
            )


def _of_keys(config, path, given):
    """Keys of a study that need or exclude each other."""
    if "cores" in given:
        for key in {"workers", "threads_per_worker"} & set(config["studies"][path[-1]]):
            yield (*path, key), "cannot stand beside `cores`, which decides it"
    if given["oversubscribe"] and not given["exclusive"]:
        yield (*path, "oversubscribe"), "needs `exclusive: true`, or runs would be in others' way"
    if "target_accuracy" in given and not given["curves"]:
        yield (*path, "target_accuracy"), "needs `curves: true`, accuracy after every epoch"
    others = [name for name in _mapping(config.get("studies")) if name != path[-1]]
    against = given.get("against")
    if "against" in given and against not in others:
        yield (*path, "against"), f"found {against!r}; {_choices(against, others)}"
    elif against and not _mapping(config["studies"][against]).get("exclusive"):
        yield (*path, "against"), f"{against!r} needs `exclusive: true`, one run at a time"
    for position, reference in enumerate(_list(given.get("references"))):
        model = _mapping(reference).get("model")
        if model not in _list(given.get("models")):
            known = _choices(model, _list(given.get("models")))
            yield (*path, "references", position, "model"), f"found {model!r}; {known}"


def _of_splits(config, path, given):
    """Folds, test sets and training-set sizes against what is known of the dataset."""
    folds = given.get("folds")
    for label in _list(given.get("datasets")):
        chosen = study.choice(config, "datasets", label)
        try:
            outline = registry.outline(chosen)
        except (KeyError, TypeError):  # told by _of_entries
            continue
        if outline is None:
            continue
        if isinstance(folds, int) and folds > outline.smallest_class:
            yield (
                (*path, "folds"),
                f"found {folds}; the smallest class of {label!r} has {outline.smallest_class} "
                "samples, so that many folds at most",
            )
        if folds == "test" and outline.test == 0:
            yield (
                (*path, "folds"),
                f"{label!r} has no test set of its own; expected a number of folds",
            )
        available = outline.train
        if isinstance(folds, int) and folds > 1:
            available = outline.train * (folds - 1) // folds
        for position, size in enumerate(_list(given["train_sizes"])):
            if isinstance(size, int) and size > available:
                yield (
                    (*path, "train_sizes", position),
                    f"found {size}; {label!r} leaves {available} samples to train on",
                )


def _line_numbers(files):
    """Path of keys -> (file, line), for everything in the YAML files."""
    lines = {}
    for file in files:
        node = yaml.compose(Path(file).read_text())
        if node is not None:
            _walk(node, (), str(file), lines)
    return lines


def _walk(node, path, file, lines):
    """Note the lines of a node and of all below it."""
    lines.setdefault(path, (file, node.start_mark.line + 1))
    children = []
    if isinstance(node, yaml.MappingNode):
        children = [(key.value, key.start_mark, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = [(i, value.start_mark, value) for i, value in enumerate(node.value)]
    for key, mark, child in children:
        lines[*path, key] = (file, mark.line + 1)
        _walk(child, (*path, key), file, lines)


def _place(path, lines):
    """Where the innermost part of the path that is written in a file stands; ("", 0): nowhere."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, ("", 0))
