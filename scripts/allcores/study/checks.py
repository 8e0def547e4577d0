"""Check a config before anything starts: a line per finding, with place and remedy."""

import math
import os
from itertools import chain
from pathlib import Path

from allcores import programs
from allcores.study import component, fit, grid, registry, schema, sweeps, yamlfile
from allcores.study.run import AUTO
from allcores.study.schema import choices, is_integer, is_number, listed, mapping, number_hint

SECTIONS = {
    "datasets": registry.datasets,
    "schedules": registry.schedules,
    "strategies": registry.strategies,
}
OWN_DECAY = component.literals_of(registry.LIBRARY / "training" / "optimizers.py")["OWN_DECAY"]
SINGULAR = {
    "datasets": "dataset",
    "models": "model",
    "schedules": "schedule",
    "strategies": "strategy",
}


def findings(config, files=(), cores=None, nodes=None, flag="--cores {}".format):
    """Everything that is wrong with a config, a line per finding; [] if it can be run.

    Args:
        config: the merged config.
        files: the YAML files it was read from, later ones overriding earlier ones; findings give
            file and line.
        cores: number of cores that the runs will share, on each node; None: unknown.
        nodes: number of nodes; None: unknown.
        flag: function of a number of cores, the command-line flag that asks for them.
    """
    lines, problems = yamlfile.places(files)
    config, sweep_problems = sweeps.resolved(config)
    problems = problems + sweep_problems + schema.violations(config)
    reported = {path for path, _ in problems}
    try:
        for path, text in chain(_check_entries(config), _check_studies(config, cores, nodes, flag)):
            if path not in reported:  # else it would be reported twice, in other words
                problems.append((path, text))
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, OSError):
        # A config that violates the schema may fail anywhere; its problems are reported already.
        if not problems:
            raise
    return located([(sweeps.original(config, path), text) for path, text in problems], lines)


def located(problems, lines):
    """A line for each (path, text), with file and line where they are known."""
    placed = sorted(
        (yamlfile.place(path, lines), ".".join(map(str, path)) or "the config", _as_one_line(text))
        for path, text in problems
    )
    return list(
        dict.fromkeys(
            f"{file}:{line}: {where}: {text}" if file else f"{where}: {text}"
            for (file, line), where, text in placed
        )
    )


def _as_one_line(text):
    """The text with unprintable characters, such as line breaks, replaced by spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _check_entries(config):
    """Names and options in the sections datasets, schedules, strategies and models."""
    for section, components in SECTIONS.items():
        for label, entry in mapping(config.get(section)).items():
            entry = dict(mapping(entry))
            path = (section, label)
            name = grid.component_name(label, entry)
            entry.pop("name", None)
            if name not in components():
                yield path, f"unknown {SINGULAR[section]} {name!r}; {choices(name, components())}"
            else:
                yield from _check_options(path, entry, components()[name])
    for label, entry in mapping(config.get("models")).items():
        yield from _check_model(("models", label), label, mapping(entry))


def _check_model(path, label, entry):
    name = grid.model_name(label, entry)
    try:
        component = registry.model(str(name))
    except KeyError:
        if "import" in entry:
            yield (*path, "import"), f"found {name!r}; expected package.module:Name"
        else:
            yield path, f"unknown model {name!r}; {choices(name, registry.models())}"
    except ValueError as error:
        yield (*path, "import"), str(error)
    else:
        other = {"name", "import", *grid.HYPERPARAMETERS}
        options = {key: value for key, value in entry.items() if key not in other}
        yield from _check_options(path, options, component, sorted(grid.HYPERPARAMETERS))
    if "import" in entry and "name" in entry:
        yield (*path, "name"), "conflicts with `import`; expected one of them"
    if "patience" in entry and "validation" not in entry:
        yield (*path, "patience"), "needs `validation`, by which epochs are judged"
    if "ema" in entry and "swa" in entry:
        yield (*path, "swa"), "conflicts with `ema`; expected one of them to average the weights"
    for key, components in (("optimizer", registry.optimizers()), ("loss", registry.losses())):
        settings = dict(mapping(entry.get(key)))
        if "name" not in settings:
            continue
        spelling = settings.pop("name")
        name = registry.canonical(spelling, components)
        if name is None:
            problem = f"unknown {key} {spelling!r}; {choices(spelling, components)}"
            yield (*path, key, "name"), problem
        else:
            yield from _check_options((*path, key), settings, components[name])
            cannot_exclude = name in OWN_DECAY or "weight_decay" not in (
                components[name].options or ()
            )
            if key == "optimizer" and "decay_biases" in entry and cannot_exclude:
                yield (*path, "decay_biases"), f"{name} cannot leave biases out of weight decay"


def _check_options(path, options, component, other_keys=()):
    """Options against the signature of their component; other_keys are listed as known, too."""
    if component.options is None:
        return
    for key, value in options.items():
        if key not in component.options:
            yield (*path, key), f"unknown key; {choices(key, [*component.options, *other_keys])}"
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
            yield from _check_value((*path, key), value, allowed)
    missing = [k for k, default in component.options.items() if default is ... and k not in options]
    if missing:
        yield path, f"lacks {', '.join(missing)}"


def _check_value(path, value, allowed):
    """A value against ALLOWED in the file of its component.

    Args:
        allowed: a tuple of values; [least, most]; the least whole number (an int) or number (a
            float); of a list, what is allowed for each element. None: anything.
    """
    if isinstance(value, list) and not isinstance(allowed, tuple):
        for position, element in enumerate(value):
            yield from _check_value((*path, position), element, allowed)
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


def _check_studies(config, cores, nodes, flag):
    for name, study in mapping(config.get("studies")).items():
        study = schema.defaults("studies") | mapping(study)
        yield from _check_study(config, ("studies", name), study, cores, nodes, flag)


def _check_study(config, path, study, cores, nodes, flag):
    sound = True
    for section, components in {**SECTIONS, "models": dict}.items():
        defined = mapping(config.get(section))
        for position, label in enumerate(listed(study.get(section))):
            if (section, label) == ("strategies", AUTO):
                continue
            name = grid.component_name(label, mapping(defined.get(label)))
            if label not in defined and name not in components():
                sound = False
                yield (
                    (*path, section, position),
                    _unknown_label(section, label, defined, components()),
                )
            elif section != "models" and name not in components():  # reported by _check_entries
                sound = False
    baseline = study.get("baseline")
    if baseline is not None and baseline not in listed(study["strategies"]):
        yield (*path, "baseline"), f"found {baseline!r}; {choices(baseline, study['strategies'])}"
    yield from _check_paths(config, study)
    yield from _check_keys(config, path, study)
    if sound:
        yield from _check_batches(config, path, study)
        yield from _check_optimizers(config, path, study)
        yield from fit.findings(config, path, study)
        yield from _check_nodes(config, path, study, nodes or float("inf"))
        yield from _check_cores(config, path, study, cores or float("inf"), flag)


def _check_paths(config, study):
    """Files and folders of the datasets that a study uses."""
    for label in listed(study.get("datasets")):
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


def _check_batches(config, path, study):
    """Every worker has to get a part of every full batch."""
    most = max((workers for _, _, workers, _, _ in _layouts(config, study)), default=1)
    for position, label in enumerate(listed(study.get("models"))):
        batch_size = mapping(mapping(config.get("models")).get(label)).get("batch_size")
        if isinstance(batch_size, int) and 0 < batch_size < most:
            yield (
                (*path, "models", position),
                f"the batch of {batch_size} of {label!r} cannot be shared by {most} "
                f"workers; expected batch_size of at least {most}",
            )


def _check_optimizers(config, path, study):
    """A strategy that updates slices of one vector cannot use an optimizer that needs shapes."""
    for position, label in _without_auto(study):
        strategy = registry.strategies()[grid.choice(config, "strategies", label).name]
        if not strategy.constants.get("element_wise"):
            continue
        for model in listed(study.get("models")):
            entry = mapping(mapping(config.get("models")).get(model))
            optimizer = mapping(entry.get("optimizer")).get("name")
            name = registry.canonical(optimizer, registry.optimizers())
            if name in registry.WHOLE_TENSOR_OPTIMIZERS:
                yield (
                    (*path, "strategies", position),
                    f"{label} updates each weight separately, which {name} of {model!r} does not; "
                    "expected another strategy or another optimizer",
                )


def _without_auto(study):
    """(position, label) of a study's strategies, without `auto`."""
    return [pair for pair in enumerate(listed(study["strategies"])) if pair[1] != AUTO]


def _layouts(config, study):
    """grid.layouts() of a study's valid values; `auto` counts as one thread, its minimum."""
    counts = {
        key: [count for count in listed(study[key]) if isinstance(count, int) and count > 0]
        for key in ("workers", "threads_per_worker", "cores")
        if key in study
    }
    counts["threads_per_worker"] = counts["threads_per_worker"] or [1]
    counts["nodes"] = [n for n in grid.node_counts(study) if is_integer(n) and n > 0] or [1]
    return list(grid.layouts(config, study | counts))


def _check_nodes(config, path, study, available):
    """A run on several nodes needs a call with as many, and a strategy that can use them."""
    most = max((nodes for _, nodes, *_ in _layouts(config, study)), default=1)
    if most > available:
        yield (
            (*path, "nodes"),
            f"found {most}; this call has {available}: ask a cluster, with `{programs.snakemake()} "
            f"--profile slurm`, or in a clone `sbatch --nodes {most} profiles/allocation.sh`",
        )
    for position, label in _without_auto(study):
        strategy = registry.strategies()[grid.choice(config, "strategies", label).name]
        if most > 1 and strategy.constants.get("one_node"):
            yield (
                (*path, "strategies", position),
                f"the workers of {label} share memory, so they are on one node; found {most} nodes",
            )


def _check_cores(config, path, study, cores, flag):
    """Snakemake would silently cut a run's threads to --cores, and tables would be wrong."""
    key = "cores" if "cores" in study else "workers"
    for strategy, nodes, workers, servers, threads in _layouts(config, study):
        needed = -(-(workers + servers) // nodes) * threads
        if workers < 1:
            yield (
                (*path, key),
                f"{strategy.label} has {servers} servers, which leaves no core for a worker: "
                f"expected {servers + 1} at least",
            )
        elif needed > cores and not study["oversubscribe"]:
            yield (
                (*path, key),
                f"{strategy.label} with {workers} workers"
                f"{f' and {servers} servers' if servers else ''} x {threads} threads needs "
                f"{needed} cores{f' on each of {nodes} nodes' if nodes > 1 else ''}; this call has "
                f"{cores}: give it {flag(needed)}, or ask for fewer workers or threads",
            )


def _check_keys(config, path, study):
    """Keys of a study that need or exclude each other."""
    yield from _check_auto(config, path, study)
    if "cores" in study:
        for key in {"workers", "threads_per_worker", "nodes"} & set(config["studies"][path[-1]]):
            yield (*path, key), "conflicts with `cores`, which decides it"
    if study["oversubscribe"] and not study["exclusive"]:
        yield (*path, "oversubscribe"), "needs `exclusive: true`, or it would slow down other runs"
    if "target_accuracy" in study and not study["curves"]:
        yield (*path, "target_accuracy"), "needs `curves: true`, accuracy after every epoch"
    others = [name for name in mapping(config.get("studies")) if name != path[-1]]
    yield from _check_against(config, path, study, others)
    for position, reference in enumerate(listed(study.get("references"))):
        model = mapping(reference).get("model")
        models = listed(study.get("models"))
        if "select" in study:  # its tables are about the swept model, not about each candidate
            models = list(dict.fromkeys(sweeps.family_of(config, label) for label in models))
        if model not in models:
            hint = choices(model, models)
            yield (*path, "references", position, "model"), f"found {model!r}; {hint}"


def _check_auto(config, path, study):
    """`strategies: [auto]` excludes the keys that it decides itself."""
    entry = config["studies"][path[-1]]
    if AUTO not in listed(study["strategies"]):
        if "candidates" in entry:
            yield (*path, "candidates"), "needs `strategies: [auto]`, which chooses from them"
        return
    if len(study["strategies"]) > 1:
        yield (*path, "strategies"), "auto chooses one strategy for each model: expected [auto]"
    for key in sorted({"workers", "threads_per_worker", "cores", "nodes", "against"} & set(entry)):
        yield (*path, key), "conflicts with `strategies: [auto]`, which decides it"
    if "baseline" in entry:
        yield (*path, "baseline"), "has nothing to be compared with in `strategies: [auto]`"
    defined = mapping(config.get("strategies"))
    for position, label in enumerate(listed(entry.get("candidates"))):
        name = grid.component_name(label, mapping(defined.get(label)))
        if name not in registry.strategies():
            text = _unknown_label("strategies", label, defined, registry.strategies())
            yield (*path, "candidates", position), text


def _check_against(config, path, study, others):
    """A packed study is compared with an exclusive one on the same data, models and folds."""
    if "against" not in study:
        return
    against = study["against"]
    if against not in others:
        yield (*path, "against"), f"found {against!r}; {choices(against, others)}"
        return
    other = schema.defaults("studies") | mapping(config["studies"][against])
    if "select" in other:
        yield (*path, "against"), f"{against!r} has `select`, which chooses its runs"
    if not other["exclusive"]:
        yield (*path, "against"), f"{against!r} needs `exclusive: true`, one run at a time"
    for key in ("datasets", "models", "schedules", "strategies", "train_sizes", "seeds"):
        if not set(listed(study.get(key))) & set(listed(other.get(key))):
            yield (*path, "against"), f"{against!r} has no {key} in common with this study"
    if study["exclusive"]:
        yield (*path, "against"), "cannot be combined with `exclusive: true`: its runs are packed"
    layouts = [{repr(layout) for layout in _layouts(config, side)} for side in (study, other)]
    if layouts[0] & layouts[1]:
        yield (
            (*path, "against"),
            f"{against!r} has a strategy with the same workers and threads as this study; the same "
            "runs cannot be both packed and exclusive",
        )
    for name, side in ((path[-1], study), (against, other)):
        labels = [strategy.label for strategy, *_ in _layouts(config, side)]
        for label in sorted({label for label in labels if labels.count(label) > 1}):
            yield (
                (*path, "against"),
                f"{name!r} has {label!r} with several workers or threads; expected one",
            )
    if study.get("folds") != other.get("folds"):
        yield (*path, "against"), f"{against!r} has other folds than this study"
