"""Choose the way of training for studies that say `auto`: the one by which they end soonest.

How many runs there are decides whether they should be narrow or wide: 200 runs on 48 cores go one
to a core, and ten take four cores each.
"""

import json
import shlex
from pathlib import Path

from allcores.files import read_json, write_json
from allcores.machine import warm_start
from allcores.planning import plan
from allcores.study import grid, registry
from allcores.study.run import AUTO, digest

PROGRAM = registry.LIBRARY.parent / "plan.py"
FILE = "chosen.json"  # in a plan
# What a strategy that is chosen promises, if the study does not say which may be: the weights of
# the reference.
PROMISE = "always"
# A plainer way is taken if a study ends at most that much later with it: no prediction is better.
TOLERANCE = 0.02
REFERENCE = grid.STUDY_DEFAULTS["strategies"][0]


def studies_of(config):
    """Names of the studies that leave the way of training to be chosen."""
    studies = config["studies"].items()
    return [name for name, study in studies if AUTO in study.get("strategies", [])]


def known(config, file, available):
    """The config with what was chosen before; None: it was for other settings, or more cores.

    Args:
        file: what choose() has written.
        available: number of cores of the call; None: a cluster's.
    """
    try:
        return _with(
            config, {name: _kept(config, name, file, available) for name in studies_of(config)}
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _kept(config, name, file, available):
    """What a file holds for a study.

    Raises:
        OSError, ValueError, KeyError, TypeError: nothing that still fits.
    """
    found = read_json(file)[name]
    if found["settings"] != _settings(config, name) or (available and found["cores"] > available):
        raise ValueError("it is for other settings, or for more cores")
    return found["ways"]


def with_reference(config):
    """The config with the reference in the place of what is to be chosen, to see how many runs
    there will be."""
    way = _way(config, REFERENCE, 1)
    ways = {
        name: _nested(dict.fromkeys(_parts(config["studies"][name]), way))
        for name in studies_of(config)
    }
    return _with(config, ways)


def command(folder, available, file):
    """The call of scripts/plan.py that chooses, for the shell.

    Args:
        folder: the ResultsFolder.
        available: number of cores to choose for.
        file: of the config.
    """
    words = [*warm_start.command(PROGRAM, None), "--results", folder.path]
    return shlex.join(map(str, [*words, "--cores", available, "--configfile", file]))


def choose(config, planner, available, file):
    """The config with a way of training for each dataset and model of its studies with `auto`.

    Args:
        planner: plan.Planner, which measures what is not known yet.
        available: number of cores of the call.
        file: where to write what was chosen, JSON.
    """
    chosen = {}
    for name in studies_of(config):
        try:
            chosen[name] = read_json(file)[name]
            _kept(config, name, file, available)
        except (OSError, ValueError, KeyError, TypeError):
            ways = _ways(config, name, planner, available)
            chosen[name] = {
                "settings": _settings(config, name),
                "cores": available,
                "ways": ways,
            }
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    write_json(file, chosen)
    return known(config, file, available)


def said(config):
    """A line for each dataset and model that a way was chosen for."""
    for name in studies_of(config):
        for dataset, of_models in config["studies"][name][grid.CHOSEN].items():
            for model, way in of_models.items():
                servers = f" + {way['servers']} servers" if way["servers"] else ""
                yield (
                    f"{name}: auto takes {way['strategy']} for {model} on {dataset}: "
                    f"{way['workers']} workers{servers} x {way['threads']} threads"
                )


def _with(config, ways):
    """The config with ways of training: study -> dataset -> model -> way."""
    studies = {
        name: study | ({grid.CHOSEN: ways[name]} if name in ways else {})
        for name, study in config["studies"].items()
    }
    return config | {"studies": studies}


def _settings(config, name):
    """What decides which way is best, beside the machine."""
    study = config["studies"][name]
    parts = {"recipe": config.get("recipe")}
    for section in ("models", "datasets"):
        entries = config.get(section) or {}
        parts |= {section: {label: entries.get(label) for label in study[section]}}
    entries = config.get("strategies") or {}
    parts["strategies"] = {label: entries.get(label) for label in study.get("candidates", [])}
    return digest(json.dumps([parts, study], sort_keys=True))


def _ways(config, name, planner, available):
    """Dataset -> model -> the way of training it by which the study ends soonest.

    One model after the other gets the way that is best beside those of the others, twice.
    """
    study = config["studies"][name]
    only = config | {"studies": {name: study}}
    parts = _parts(study)

    def table_of(ways):
        return grid.expand(_with(only, {name: _nested(ways)})).to_plan()

    def seconds(ways):
        table = table_of(ways)
        return plan.pack(planner.of(table), table, available, planner.memory).makespan

    ways = {part: _way(config, REFERENCE, 1) for part in parts}
    runs = len(table_of(ways).runs) // len(parts)
    candidates = {
        (dataset, model): list(_candidates(config, study, model, available, runs))
        for dataset, model in parts
    }
    for part in parts:
        candidates[part] = list(_measured(candidates[part], part, ways, table_of, planner))
    for _ in range(2 if len(parts) > 1 else 1):
        for part in parts:
            ends = {i: seconds(ways | {part: way}) for i, way in enumerate(candidates[part])}
            soon = min(ends.values()) * (1 + TOLERANCE)
            first = next(i for i, end in ends.items() if end <= soon)
            ways |= {part: candidates[part][first]}
    return _nested(ways)


def _parts(study):
    return [(dataset, model) for dataset in study["datasets"] for model in study["models"]]


def _measured(candidates, part, ways, table_of, planner):
    """Those candidates that can be trained.

    Raises:
        ValueError: none can.
    """
    problem = "no strategy has a way to use these cores with this batch size"
    count = 0
    for way in candidates:
        try:
            planner.measure(table_of(ways | {part: way}).runs.values())
            count += 1
            yield way
        except ValueError as error:  # batch norm, say, with one image for each worker
            problem = str(error)
    if not count:
        raise ValueError(f"{part[1]} on {part[0]}: {problem}")


def _nested(ways):
    """{(dataset, model): way} as dataset -> model -> way."""
    found = {dataset: {} for dataset, _ in ways}
    for (dataset, model), way in ways.items():
        found[dataset][model] = way
    return found


def _candidates(config, study, model, available, runs):
    """Every way of training a model that may be best, the plainest first.

    Args:
        runs: how many of the model there are.
    """
    batch_size = config["models"][model]["batch_size"]
    optimizer = config["models"][model]["optimizer"]["name"]
    whole = registry.canonical(optimizer, registry.optimizers()) in registry.WHOLE_TENSOR_OPTIMIZERS
    for label in study.get("candidates") or _promising():
        strategy = registry.strategies()[grid.choice(config, "strategies", label).name]
        if whole and strategy.constants.get("element_wise"):
            continue
        for width in _widths(available, runs):
            way = _way(config, label, width)
            alone = way["workers"] == way["threads"] == 1
            # A lone worker is the reference, whatever the strategy.
            if 1 <= way["workers"] <= batch_size and (not alone or label == REFERENCE):
                yield way


def _promising():
    """The reference, and the built-in strategies that end with its weights."""
    known = registry.strategies().items()
    return [REFERENCE, *(n for n, c in known if c.constants.get("equals_serial") == PROMISE)]


def _widths(available, runs):
    """Numbers of cores that a run may take: powers of two, all, and an equal share of all."""
    powers = {1 << power for power in range(available.bit_length())}
    return sorted({*powers, available, max(1, available // runs)})


def _way(config, label, cores):
    """How a strategy uses so many cores: as workers and servers, or as threads."""
    _, _, workers, servers, threads = next(
        layout for layout in grid.layouts(config, grid.STUDY_DEFAULTS | _alone(label, cores))
    )
    return {"strategy": label, "workers": workers, "servers": servers, "threads": threads}


def _alone(label, cores):
    return {"strategies": [label], "cores": [cores]}
