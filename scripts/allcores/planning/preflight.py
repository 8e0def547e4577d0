"""Try out each kind of run on two samples before any job starts, in a process with torch."""

import dataclasses
import json
import subprocess
from pathlib import Path

from allcores.files import write_text
from allcores.study import checks, fingerprint, identity, registry, yamlfile
from allcores.study.run import digest

PROGRAM = registry.LIBRARY.parent / "check_models.py"


def findings(table, files, cache, command):
    """Try out the runs of a grid.Table; returns a line for each problem that prevents training.

    Args:
        files: the config's YAML files; findings give the file and line of the model.
        command: how to call scripts/check_models.py, a list.
        cache: JSON file of what was counted in the trials that have succeeded; new ones are added.
    """
    sound = counts(cache)
    trials = dict(filter(None, map(trial, table.runs.values())))
    new = {key: trial for key, trial in trials.items() if key not in sound}
    if not new:
        return []
    answers = dict(zip(new, _try_out(list(new.values()), command), strict=False))
    found = {
        (("models", new[key]["model"]), problem) for key, (problem, _) in answers.items() if problem
    }
    sound |= {key: counted for key, (problem, counted) in answers.items() if not problem}
    Path(cache).parent.mkdir(parents=True, exist_ok=True)
    write_text(cache, json.dumps(sound, indent=1))
    return checks.located(found, yamlfile.places(files)[0])


def counts(cache):
    """Key of each trial that has succeeded -> what was counted in it."""
    try:
        return dict(json.loads(Path(cache).read_text()))
    except (OSError, ValueError, TypeError):  # none yet, or damaged: it only saves time
        return {}


def trial(run):
    """(key, what sanity.tried_out() is to be asked) of a Run; None: too little is known of its
    dataset. All runs that differ in nothing else are one trial."""
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
        answers.append(("the model ends the process that it is tried out in", {}))
    return answers
