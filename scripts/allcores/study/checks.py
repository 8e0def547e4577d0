"""Check a config before anything starts: a line per finding, with its place and the remedy."""

import math
import os
from itertools import chain
from pathlib import Path

from allcores.study import fit, grid, registry, schema, sweeps, yamlfile
from allcores.study.run import AUTO
from allcores.study.schema import choices, is_integer, is_number, listed, mapping, number_hint

SECTIONS = {
    "datasets": registry.datasets,
    "schedules": registry.schedules,
    "strategies": registry.strategies,
}
OWN_DECAY = registry.literals_of(registry.LIBRARY / "training" / "optimizers.py")["OWN_DECAY"]
SINGULAR = {
    "datasets": "dataset",
    "models": "model",
    "schedules": "schedule",
    "strategies": "strategy",
}


def findings(config, files=(), cores=None, nodes=None, flag="--cores"):
    """Everything that is wrong with a config, a line per finding; [] if it can be run.

    Args:
        config: the merged config.
        files: the YAML files it was read from, later ones overriding earlier ones; findings give
            file and line.
        cores: number of cores that the runs will share, on each node; None: unknown.
        nodes: number of nodes; None: unknown.
        flag: by which more cores are asked for.
    """
    lines, found = yamlfile.places(files)
    config, of_sweeps = sweeps.resolved(config)
    found = found + of_sweeps + schema.violations(config)
    told = {path for path, _ in found}
    try:
        for path, text in chain(_of_entries(config), _of_studies(config, cores, nodes, flag)):
            if path not in told:  # or it would be said again, in other words
                found.append((path, text))
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, OSError):
        # What the schema does not know may be anything, and that has been told then.
        if not found:
            raise
    return located([(sweeps.original(config, path), text) for path, text in found], lines)


def located(found, lines):
    """A line for each (path, text), with file and line where they are known."""
    placed = sorted(
        (yamlfile.place(path, lines), ".".join(map(str, path)) or "the config", _in_a_line(text))
        for path, text in found
    )
    return list(
        dict.fromkeys(
            f"{file}:{line}: {where}: {text}" if file else f"{where}: {text}"
            for (file, line), where, text in placed
        )
    )


def _in_a_line(text):
    """The text with unprintable characters, such as line breaks, replaced by spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _of_entries(config):
    """Names and options in the sections datasets, schedules, strategies and models."""
    for section, known in SECTIONS.items():
        for label, entry in mapping(config.get(section)).items():
            entry = dict(mapping(entry))
            path = (section, label)
            name = grid.component_name(label, entry)
            entry.pop("name", None)
            if name not in known():
                yield path, f"unknown {SINGULAR[section]} {name!r}; {choices(name, known())}"
            else:
                yield from _of_options(path, entry, known()[name])
    for label, entry in mapping(config.get("models")).items():
        yield from _of_model(("models", label), label, mapping(entry))


def _of_model(path, label, entry):
    name = grid.model_name(label, entry)
    try:
        component = registry.model(str(name))
    except KeyError:
        yield path, f"unknown model {name!r}; {choices(name, registry.models())}"
    except ValueError as error:
        yield (*path, "import"), str(error)
    else:
        own = {"name", "import"} | grid.HYPERPARAMETERS
        options = {k: v for k, v in entry.items() if k not in own}
        yield from _of_options(path, options, component, sorted(grid.HYPERPARAMETERS))
    if "import" in entry and "name" in entry:
        yield (*path, "name"), "is there beside `import`; expected one of them"
    if "patience" in entry and "validation" not in entry:
        yield (*path, "patience"), "takes a `validation` part, by which epochs are judged"
    if "ema" in entry and "swa" in entry:
        yield (*path, "swa"), "is there beside `ema`; expected one way of averaging the weights"
    for key, known in (("optimizer", registry.optimizers()), ("loss", registry.losses())):
        chosen = dict(mapping(entry.get(key)))
        if "name" not in chosen:
            continue
        given = chosen.pop("name")
        name = registry.canonical(given, known)
        if name is None:
            yield (*path, key, "name"), f"unknown {key} {given!r}; {choices(given, known)}"
        else:
            yield from _of_options((*path, key), chosen, known[name])
            without = name in OWN_DECAY or "weight_decay" not in (known[name].options or ())
            if key == "optimizer" and "decay_biases" in entry and without:
                yield (*path, "decay_biases"), f"{name} cannot leave them out"


def _of_options(path, given, component, beside=()):
    """Options against the signature of what they are given to; `beside` are its other keys."""
    if component.options is None:
        return
    for key, value in given.items():
        if key not in component.options:
            yield (*path, key), f"unknown key; {choices(key, [*component.options, *beside])}"
            continue
        default = component.options[key]
        allowed = component.constants.get("ALLOWED", {}).get(key)
        if allowed is None and isinstance(default, bool):
            allowed = (True, False)
        if isinstance(value, str) and isinstance(default, int | float):
            yield (*path, key), f"found the text {value!r}; expected a number{number_hint(value)}"
        elif isinstance(default, int | float) and not isinstance(value, int | float | None):
            yield (*path, key), f"found {value!r}; expected something like {default!r}"
        elif isinstance(default, tuple) and not isinstance(value, list):
            yield (*path, key), f"found {value!r}; expected a list like {list(default)}"
        else:
            yield from _of_allowed((*path, key), value, allowed)
    missing = [k for k, default in component.options.items() if default is ... and k not in given]
    if missing:
        yield path, f"lacks {', '.join(missing)}"


def _of_allowed(path, value, allowed):
    """A value against what its component's file says.

    Args:
        allowed: a tuple of values; [least, most]; the least whole number; the least number; of a
            list, that of each element. None: anything.
    """
    if isinstance(value, list) and not isinstance(allowed, tuple):
        for position, element in enumerate(value):
            yield from _of_allowed((*path, position), element, allowed)
    elif isinstance(allowed, tuple):
        if value not in allowed:
            yield path, f"found {value!r}; {choices(value, allowed)}"
    elif allowed is not None:
        least, most = allowed if isinstance(allowed, list) else (allowed, math.inf)
        is_right = is_integer if isinstance(least, int) else is_number
        if not (is_right(value) and least <= value <= most):
            kind = "a whole number" if isinstance(least, int) else "a number"
            end = "" if most == math.inf else f" to {most:g}"
            yield path, f"found {value!r}; expected {kind} from {least:g}{end}"


def _of_studies(config, cores, nodes, flag):
    for name, given in mapping(config.get("studies")).items():
        given = grid.STUDY_DEFAULTS | mapping(given)
        yield from _of_study(config, ("studies", name), given, cores, nodes, flag)


def _of_study(config, path, given, cores, nodes, flag):
    sound = True
    for section, known in {**SECTIONS, "models": dict}.items():
        defined = mapping(config.get(section))
        for position, label in enumerate(listed(given.get(section))):
            if (section, label) == ("strategies", AUTO):
                continue
            name = grid.component_name(label, mapping(defined.get(label)))
            if label not in defined and name not in known():
                sound = False
                yield (*path, section, position), _unknown_label(section, label, defined, known())
            elif section != "models" and name not in known():  # told by _of_entries
                sound = False
    baseline = given.get("baseline")
    if baseline is not None and baseline not in listed(given["strategies"]):
        yield (*path, "baseline"), f"found {baseline!r}; {choices(baseline, given['strategies'])}"
    yield from _of_paths(config, given)
    yield from _of_keys(config, path, given)
    if sound:
        yield from _of_batches(config, path, given)
        yield from _of_optimizers(config, path, given)
        yield from fit.findings(config, path, given)
        yield from _of_nodes(config, path, given, nodes or float("inf"))
        yield from _of_cores(config, path, given, cores or float("inf"), flag)


def _of_paths(config, given):
    """Files and folders of the datasets that a study uses."""
    for label in listed(given.get("datasets")):
        path = mapping(mapping(config.get("datasets")).get(label)).get("path")
        if isinstance(path, str):
            problem = _unreadable(path)
            if problem:
                yield ("datasets", label, "path"), problem


def _unreadable(path):
    """Why a file or folder cannot be read; None: it can."""
    try:
        if not Path(path).exists():
            return f"there is no {path} (from {Path.cwd()})"
    except (OSError, ValueError) as error:  # a name that is too long, or has a null byte
        return str(error)
    return None if os.access(path, os.R_OK) else f"{path} cannot be read"


def _unknown_label(section, label, defined, known):
    hint = ""
    if section == "models" and label in registry.models():
        hint = "; give it an entry in `models`, with its batch_size, epochs and optimizer"
    return f"unknown {SINGULAR[section]} {label!r}; {choices(label, [*defined, *known])}{hint}"


def _of_batches(config, path, given):
    """Every worker has to get a part of every full batch."""
    most = max((workers for _, _, workers, _, _ in _layouts(config, given)), default=1)
    for position, label in enumerate(listed(given.get("models"))):
        batch_size = mapping(mapping(config.get("models")).get(label)).get("batch_size")
        if isinstance(batch_size, int) and 0 < batch_size < most:
            yield (
                (*path, "models", position),
                f"the batch of {batch_size} of {label!r} cannot be shared by {most} "
                f"workers; expected batch_size of at least {most}",
            )


def _of_optimizers(config, path, given):
    """A strategy that updates slices of one vector cannot serve an optimizer that needs shapes."""
    for position, label in _strategies_named(given):
        strategy = registry.strategies()[grid.choice(config, "strategies", label).name]
        if not strategy.constants.get("element_wise"):
            continue
        for model in listed(given.get("models")):
            entry = mapping(mapping(config.get("models")).get(model))
            chosen = mapping(entry.get("optimizer")).get("name")
            name = registry.canonical(chosen, registry.optimizers())
            if name in registry.WHOLE_TENSOR_OPTIMIZERS:
                yield (
                    (*path, "strategies", position),
                    f"{label} treats every weight alone, which {name} of {model!r} does not; "
                    "expected another strategy or another optimizer",
                )


def _strategies_named(given):
    """(position, label) of a study's strategies, without `auto`."""
    return [each for each in enumerate(listed(given["strategies"])) if each[1] != AUTO]


def _layouts(config, given):
    """grid.layouts() of the valid values in a study; `auto` counts as one thread, its minimum."""
    counts = {
        key: [count for count in listed(given[key]) if isinstance(count, int) and count > 0]
        for key in ("workers", "threads_per_worker", "cores")
        if key in given
    }
    counts["threads_per_worker"] = counts["threads_per_worker"] or [1]
    counts["nodes"] = [n for n in grid.node_counts(given) if is_integer(n) and n > 0] or [1]
    return list(grid.layouts(config, given | counts))


def _of_nodes(config, path, given, available):
    """A run takes nodes that the call has, and a strategy that reaches across them."""
    most = max((nodes for _, nodes, *_ in _layouts(config, given)), default=1)
    if most > available:
        yield (
            (*path, "nodes"),
            f"found {most}; this call has {available}: ask a cluster, with `sbatch --nodes {most} "
            "--exclusive profiles/allocation.sh` or `snakemake --profile slurm`",
        )
    for position, label in _strategies_named(given):
        strategy = registry.strategies()[grid.choice(config, "strategies", label).name]
        if most > 1 and strategy.constants.get("one_node"):
            yield (
                (*path, "strategies", position),
                f"the workers of {label} share memory, so they are on one node; found {most} nodes",
            )


def _of_cores(config, path, given, cores, flag):
    """Snakemake would silently cut a run's threads to --cores, and tables would mislabel it."""
    key = "cores" if "cores" in given else "workers"
    for strategy, nodes, workers, servers, threads in _layouts(config, given):
        needed = -(-(workers + servers) // nodes) * threads
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
                f"{needed} cores{f' on each of {nodes} nodes' if nodes > 1 else ''}; this call has "
                f"{cores}: give it {flag} {needed}, or ask for fewer workers or threads",
            )


def _of_keys(config, path, given):
    """Keys of a study that need or exclude each other."""
    yield from _of_auto(config, path, given)
    if "cores" in given:
        for key in {"workers", "threads_per_worker", "nodes"} & set(config["studies"][path[-1]]):
            yield (*path, key), "cannot stand beside `cores`, which decides it"
    if given["oversubscribe"] and not given["exclusive"]:
        yield (*path, "oversubscribe"), "needs `exclusive: true`, or it would slow down other runs"
    if "target_accuracy" in given and not given["curves"]:
        yield (*path, "target_accuracy"), "needs `curves: true`, accuracy after every epoch"
    others = [name for name in mapping(config.get("studies")) if name != path[-1]]
    yield from _of_against(config, path, given, others)
    for position, reference in enumerate(listed(given.get("references"))):
        model = mapping(reference).get("model")
        models = listed(given.get("models"))
        if "select" in given:  # its tables are about what is swept, not about each candidate
            models = list(dict.fromkeys(sweeps.family_of(config, label) for label in models))
        if model not in models:
            known = choices(model, models)
            yield (*path, "references", position, "model"), f"found {model!r}; {known}"


def _of_auto(config, path, given):
    """Where the way of training is to be chosen, nothing else can say it."""
    own = config["studies"][path[-1]]
    if AUTO not in listed(given["strategies"]):
        if "candidates" in own:
            yield (*path, "candidates"), "needs `strategies: [auto]`, which chooses from them"
        return
    if len(given["strategies"]) > 1:
        yield (*path, "strategies"), "auto chooses one strategy for each model: expected [auto]"
    for key in sorted({"workers", "threads_per_worker", "cores", "nodes", "against"} & set(own)):
        yield (*path, key), "cannot stand beside `strategies: [auto]`, which decides it"
    if "baseline" in own:
        yield (*path, "baseline"), "has nothing to be compared with beside `strategies: [auto]`"
    defined = mapping(config.get("strategies"))
    for position, label in enumerate(listed(own.get("candidates"))):
        name = grid.component_name(label, mapping(defined.get(label)))
        if name not in registry.strategies():
            text = _unknown_label("strategies", label, defined, registry.strategies())
            yield (*path, "candidates", position), text


def _of_against(config, path, given, others):
    """A study that is held against another shares runs with it, and those were alone."""
    if "against" not in given:
        return
    against = given["against"]
    if against not in others:
        yield (*path, "against"), f"found {against!r}; {choices(against, others)}"
        return
    other = grid.STUDY_DEFAULTS | mapping(config["studies"][against])
    if "select" in other:
        yield (*path, "against"), f"{against!r} selects: its runs are those that it has chosen"
    if not other["exclusive"]:
        yield (*path, "against"), f"{against!r} needs `exclusive: true`, one run at a time"
    for key in ("datasets", "models", "schedules", "strategies", "train_sizes", "seeds"):
        if not set(listed(given.get(key))) & set(listed(other.get(key))):
            yield (*path, "against"), f"{against!r} has no {key} in common with this study"
    if given["exclusive"]:
        yield (*path, "against"), "cannot be combined with `exclusive: true`: its runs are packed"
    alike = [{repr(way) for way in _layouts(config, of_study)} for of_study in (given, other)]
    if alike[0] & alike[1]:
        yield (
            (*path, "against"),
            f"{against!r} has a strategy with the same workers and threads as this study; the same "
            "runs cannot be both packed and exclusive",
        )
    for name, of_study in ((path[-1], given), (against, other)):
        labels = [strategy.label for strategy, *_ in _layouts(config, of_study)]
        for label in sorted({label for label in labels if labels.count(label) > 1}):
            yield (*path, "against"), f"{name!r} has {label!r} in several ways; expected one"
    if given.get("folds") != other.get("folds"):
        yield (*path, "against"), f"{against!r} has other folds than this study"
