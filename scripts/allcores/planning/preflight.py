"""Try out each kind of run on two samples before any job starts, in a process with torch."""

import dataclasses
import json
import subprocess
from pathlib import Path

from allcores.files import read_json, write_json
from allcores.study import checks, fingerprint, identity, registry, sweeps, yamlfile
from allcores.study.run import digest

PROGRAM = registry.LIBRARY.parent / "check_models.py"


def findings(config, table, files, cache, command):
    """Try out the runs of a grid.Table; returns a line for each problem that prevents training.

    Args:
        config: the config of the table, its sweeps expanded.
        files: the config's YAML files; findings give file and line of a problem.
        cache: JSON file of the successful trials and of what a sample took in them, with new ones.
        command: how to call scripts/check_models.py, a list.
    """
    cached = _cached(cache)
    new = {
        key: trial
        for key, trial in _trials(table).items()
        if key not in cached or not set(trial["strategies"]) <= set(cached[key]["strategies"])
    }
    if not new:
        return []
    answers = dict(zip(new, _try_out(list(new.values()), command), strict=False))
    problems = {
        (sweeps.original(config, tuple(answer["place"])), answer["problem"])
        for answer in answers.values()
        if answer["problem"]
    }
    for key, answer in answers.items():
        if not answer["problem"]:
            strategies = new[key]["strategies"] + cached.get(key, {}).get("strategies", [])
            cached[key] = {"counts": answer["counts"], "strategies": sorted(set(strategies))}
    Path(cache).parent.mkdir(parents=True, exist_ok=True)
    write_json(cache, cached)
    return checks.located(problems, yamlfile.places(files)[0])


def counts(cache):
    """Key of each successful trial -> what a sample took in it."""
    return {key: trial["counts"] for key, trial in _cached(cache).items()}


def _cached(cache):
    try:
        return read_json(cache)
    except (OSError, ValueError):  # none yet, or damaged: it only saves time
        return {}


def _trials(table):
    """Key -> trial, for the runs of a grid.Table about whose dataset enough is known."""
    trials = {}
    for run in table.runs.values():
        key, request = trial(run) or (None, None)
        if key is None:
            continue
        strategies = trials.setdefault(key, request | {"strategies": []})["strategies"]
        # With a single worker most strategies have no effect: see Strategy.is_alone().
        constants = registry.strategies()[run.strategy.name].constants
        has_effect_alone = constants.get("one_worker") or constants.get("asynchronous")
        is_used = run.processes > 1 or has_effect_alone or run.strategy.options
        if is_used and run.strategy.to_json() not in strategies:
            strategies.append(run.strategy.to_json())
    return trials


def trial(run):
    """(key, arguments of sanity.tried_out() without strategies) for a Run; None: too little is
    known of its dataset. Runs that differ in nothing else share one trial."""
    metadata = registry.metadata(run.dataset)
    if metadata is None:
        return None
    minimal = dataclasses.replace(
        run.plain,
        dataset=dataclasses.replace(run.dataset, label="", options={}),
        **dict.fromkeys(("folds", "fold", "inner_folds", "inner_fold", "train_size")),
        **{"seed": 0, "epochs": 1},
        batch_size=min(2, run.batch_size // run.workers),
        **{"workers": 1, "servers": 0, "nodes": 1, "threads_per_worker": 1},
        **{"crop": 0, "flip": False},
    )
    request = {
        "model": run.model.label,
        "settings": minimal.to_json(),
        "shape": metadata.shape,
        "classes": metadata.classes,
    }
    # The strategy does not decide whether a model fits.
    settings = json.loads(minimal.to_json())
    del settings["strategy"]
    parts = [settings, metadata.shape, metadata.classes, fingerprint.of_recipe(run)]
    return digest(json.dumps([*parts, identity.version_of_torch()])), request


def _try_out(trials, command):
    """The answers to the trials, up to the first one that ends the process, which is blamed."""
    request = json.dumps(trials)
    process = subprocess.run(
        list(map(str, command)), input=request, text=True, stdout=subprocess.PIPE
    )
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    if len(answers) < len(trials):
        place = ("models", trials[len(answers)]["model"])
        problem = "the model ends the process that it is tried out in"
        answers.append({"problem": problem, "place": place})
    return answers
