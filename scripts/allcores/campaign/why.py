"""Why a run would be trained again: which setting, which file of code, which data."""

import json
from pathlib import Path

from allcores.analysis import collect
from allcores.campaign import record
from allcores.data import preparation, storage
from allcores.study.metrics_file import read_metrics


def reasons(folder, run, table):
    """Lines that say why a Run would be trained; none if it would not be.

    Args:
        folder: the ResultsFolder.
        table: the run's grid.Table.
    """
    if not folder.has(run.path):
        return ["has not been trained"]
    try:
        metrics = read_metrics(Path(folder.run(run.path), "metrics.json"))
    except ValueError as error:
        return [str(error)]
    found = metrics["identity"]
    wanted = collect.wanted_identity(run, folder.dataset(""), found)
    lines = list(_of_settings(json.loads(found["settings"]), json.loads(wanted["settings"])))
    if found["code"] != wanted["code"]:
        lines.append(f"code: {_of_code(folder, run, found['code'])}")
    if _has_other_data(folder, run):
        lines.append("data: the dataset is made anew, from other files, options or code")
    for part in ("torch", "inputs", "targets", "folds"):
        if found.get(part) != wanted[part]:
            lines.append(f"{part}: {_short(found.get(part))} -> {_short(wanted[part])}")
    asked = folder.conditions_of(run, table)
    if asked.generation > metrics["conditions"]["generation"]:
        missing = [key for key in ("curves", "exclusive") if getattr(asked, key)]
        lines.append(f"now with {' and '.join(missing)}")
    return lines


def _has_other_data(folder, run):
    try:
        made_from = storage.read_info(folder.data(run))["made_from"]
        return made_from != preparation.made_from(run.dataset)
    except (OSError, ValueError, KeyError):
        return True


def _of_settings(found, wanted, where=""):
    """A line for each setting that differs, with its old and its new value."""
    for key in dict.fromkeys([*wanted, *found]):
        name, old, new = f"{where}{key}", found.get(key), wanted.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _of_settings(old, new, f"{name}.")
        elif old != new:
            yield f"{name.replace('.options', '')}: {old} -> {new}"


def _of_code(folder, run, code):
    """The definitions that have changed, been added or are gone, by their files."""
    try:
        before = json.loads(record.code_file(folder, code).read_text())
    except (OSError, ValueError):
        return "of another version, of which nothing was written down"
    now = record.definitions(run)
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    files = {}
    for key in changed:
        module, name = key.split(" ", 1)
        files.setdefault(module.replace(".", "/") + ".py", []).append(name)
    return "; ".join(f"{file} ({', '.join(filter(None, names))})" for file, names in files.items())


def _short(text):
    return str(text) if text is None or len(text) < 40 else f"{text[:36]}..."
