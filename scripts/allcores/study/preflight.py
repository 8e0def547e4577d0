"""Try out each kind of run on two images before any job starts, in a process with torch."""

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
        cache: JSON file with the keys of the trials that have succeeded; new ones are added.
    """
    try:
        sound = set(json.loads(Path(cache).read_text()))
    except (OSError, ValueError, TypeError):  # none yet, or damaged: it only saves time
        sound = set()
    new = {key: trial for key, trial in _trials(table).items() if key not in sound}
    if not new:
        return []
    problems = dict(zip(new, _try_out(list(new.values()), command), strict=False))
    found = {
        (("models", new[key]["model"]), problem) for key, problem in problems.items() if problem
    }
    fine = {key for key, problem in problems.items() if not problem}
    Path(cache).parent.mkdir(parents=True, exist_ok=True)
    write_text(cache, json.dumps(sorted(sound | fine)))
    return checks.located(found, yamlfile.places(files)[0])


def _trials(table):
    """Key -> what sanity.problem() is to be asked; for datasets of which enough is known."""
    found = {}
    for run in table.runs.values():
        metadata = registry.metadata(run.dataset)
        if metadata is None:
            continue
        # All runs that differ in nothing else are one trial.
        one = dataclasses.replace(
            run.plain,
            dataset=dataclasses.replace(run.dataset, label="", options={}),
            **{"folds": None, "fold": None, "train_size": None, "seed": 0, "epochs": 1},
            batch_size=min(2, run.batch_size // run.workers),
            **{"workers": 1, "servers": 0, "nodes": 1, "crop": 0, "flip": False},
        )
        trial = {
            "model": run.model.label,
            "settings": one.to_json(),
            "shape": metadata.shape,
            "classes": metadata.classes,
        }
        # What shares the work has no part in whether a model fits.
        settings = {
            key: value for key, value in json.loads(one.to_json()).items() if key != "strategy"
        }
        told = [settings, metadata.shape, metadata.classes, fingerprint.of_recipe(run)]
        found[digest(json.dumps([*told, identity.version_of_torch()]))] = trial
    return found


def _try_out(trials, command):
    """The answer to each trial, up to one that ends the process: that is to blame itself."""
    asked = json.dumps(trials)
    process = subprocess.run(
        list(map(str, command)), input=asked, text=True, stdout=subprocess.PIPE
    )
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    if len(answers) < len(trials):
        answers.append("the model ends the process that it is tried out in")
    return answers
