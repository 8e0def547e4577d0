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
        config: of which the table is, its sweeps expanded.
        files: the config's YAML files; findings give file and line of what does not fit.
        command: how to call scripts/check_models.py, a list.
        cache: JSON file of what the trials that have succeeded were of, and what was counted in
            them; new ones are added.
    """
    known = _known(cache)
    new = {
        key: trial
        for key, trial in _trials(table).items()
        if key not in known or not set(trial["strategies"]) <= set(known[key]["strategies"])
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
            strategies = new[key]["strategies"] + known.get(key, {}).get("strategies", [])
            known[key] = {"counts": answer["counts"], "strategies": sorted(set(strategies))}
    Path(cache).parent.mkdir(parents=True, exist_ok=True)
    write_json(cache, known)
    return checks.located(problems, yamlfile.places(files)[0])


def counts(cache):
    """Key of each trial that has succeeded -> what was counted in it."""
    return {key: trial["counts"] for key, trial in _known(cache).items()}


def _known(cache):
    try:
        return read_json(cache)
    except (OSError, ValueError):  # none yet, or damaged: it only saves time
        return {}


def _trials(table):
    """Key -> what is to be tried out, of all runs of a grid.Table of whose data enough is known."""
    trials = {}
    for run in table.runs.values():
        key, asked = trial(run) or (None, None)
        if key is None:
            continue
        strategies = trials.setdefault(key, asked | {"strategies": []})["strategies"]
        # A lone worker is trained without most of them: see Strategy.is_alone().
        constants = registry.strategies()[run.strategy.name].constants
        own = constants.get("one_worker") or constants.get("asynchronous")
        is_used = run.processes > 1 or own or run.strategy.options
        if is_used and run.strategy.to_json() not in strategies:
            strategies.append(run.strategy.to_json())
    return trials


def trial(run):
    """(key, what sanity.tried_out() is to be asked) of a Run, without strategies; None: too little
    is known of its dataset. All runs that differ in nothing else are one trial."""
    metadata = registry.metadata(run.dataset)
    if metadata is None:
        return None
    one = dataclasses.replace(
        run.plain,
        dataset=dataclasses.replace(run.dataset, label="", options={}),
        **dict.fromkeys(("folds", "fold", "inner_folds", "inner_fold", "train_size")),
        **{"seed": 0, "epochs": 1},
        batch_size=min(2, run.batch_size // run.workers),
        **{"workers": 1, "servers": 0, "nodes": 1, "crop": 0, "flip": False},
    )
    asked = {
        "model": run.model.label,
        "settings": one.to_json(),
        "shape": metadata.shape,
        "classes": metadata.classes,
    }
    # What shares the work has no part in whether a model fits.
    settings = {key: value for key, value in json.loads(one.to_json()).items() if key != "strategy"}
    told = [settings, metadata.shape, metadata.classes, fingerprint.of_recipe(run)]
    return digest(json.dumps([*told, identity.version_of_torch()])), asked


def _try_out(trials, command):
    """The answer to each trial, up to one that ends the process: that is to blame itself."""
    asked = json.dumps(trials)
    process = subprocess.run(
        list(map(str, command)), input=asked, text=True, stdout=subprocess.PIPE
    )
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    if len(answers) < len(trials):
        place = ("models", trials[len(answers)]["model"])
        problem = "the model ends the process that it is tried out in"
        answers.append({"problem": problem, "place": place})
    return answers
