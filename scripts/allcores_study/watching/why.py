"""Why a run would be retrained: which setting, which file of code, which data."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.files import read_json, write_json
from allcores_study.records import fingerprint, identity, run_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from allcores_study.config.run import Run
    from allcores_study.records.results_folder import ResultsFolder
    from allcores_study.watching.ledger import Ledger, UpToDateCheck

# Folder with a file for each fingerprint: the hashes of the files that the code consists of.
CODE = "code"


def lines(ledger: Ledger) -> Iterator[str]:
    """Yield each reason why runs would be trained, with the runs that it applies to.

    Then comes the number of choices between candidates that would be made.
    """
    runs_of, folder, table = defaultdict(list), ledger.folder, ledger.table
    choices, again = table.choices.values(), to_choose(ledger)
    # Runs whose values are not suggested yet.
    unknown = {
        path
        for choice in choices
        if choice.suggested_by and choice.suggested_by.path in again
        for paths in choice.inner.values()
        for path in paths
    }
    for path in (path for path in folder.wanted_paths(table) if path not in unknown):
        run_reasons = reasons(ledger.is_up_to_date, table.runs[path])
        if run_reasons:
            runs_of["\n    ".join(run_reasons)].append(path)
    for reason, paths in runs_of.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield f"{paths[0]}{more}:\n    {reason}"
    if again:
        yield f"{len(again)} of {len(choices)} choices between candidates are to be made:"
        yield "    they decide which other runs are trained"
    elif not runs_of:
        yield "all runs are up to date with the config"


def to_choose(ledger: Ledger) -> set[str]:
    """Return the paths of the selections whose choice does not exist, or may be another one now."""
    choices = ledger.table.choices.values()
    return {choice.path for choice in choices if not ledger.is_valid(choice)}


def write_code(folder: ResultsFolder, runs: Iterable[Run]) -> None:
    """Write the hashes of the files that the runs' code consists of, once for each fingerprint."""
    for code, run in {fingerprint.of_run(run): run for run in runs}.items():
        file = _code_file(folder, code)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, fingerprint.files_of_run(run))


def _code_file(folder: ResultsFolder, code: str) -> Path:
    return Path(folder.call_file(CODE)) / f"{code.split()[-1]}.json"


def reasons(check: UpToDateCheck, run: Run) -> list[str]:
    """Return lines on why a run would be trained; none if it would not be.

    Args:
        check: of the run's table.
    """
    from allcores_study.analysis import collect  # not at the top: snakemake would import pandas

    folder, table = check.folder, check.table
    if not (Path(folder.metrics(run.path)).exists() or folder.has(run.path)):
        return ["has not been trained, or not to its end"]
    if damaged := folder.damaged_file(run.path):
        return [f"{damaged} is gone, or is not what this version writes"]
    record = folder.record(run.path)
    assert record is not None, "it is neither gone nor damaged"
    recorded = run_files.metrics(folder.run_files(run.path))["identity"]
    before_data = {part: recorded[part] for part in identity.before_data(run)}
    is_other = check.made_of(run, before_data) != record.made_of
    try:
        expected = collect.wanted_identity(run, folder.dataset(""), recorded)
    except ValueError as error:
        # Damaged data are rebuilt. If their files come out the same, nothing is retrained.
        return [f"data: {error}"] if is_other else []
    then, now = (json.loads(str(of["settings"])) for of in (recorded, expected))
    lines = list(_of_settings(then, now))
    if recorded["code"] != expected["code"]:
        lines.append(f"code: {_of_code(folder, run, recorded['code'])}")
    if edited := fingerprint.changed(record.loaded):
        lines.append(f"code: {', '.join(edited)}, loaded by the run")
    if is_other:
        lines.append("data: the dataset is now made from other files, options or code")
    for part in ("torch", "inputs", "targets", "folds"):
        if recorded.get(part) != expected[part]:
            lines.append(f"{part}: {_short(recorded.get(part))} -> {_short(expected[part])}")
    if not check.has_what_is_asked(run, record):
        asked = table.conditions[run.path]
        missing = [key for key in ("curves", "exclusive") if getattr(asked, key)]
        lines.append(f"now with {' and '.join(missing)}")
    if recipes_differ := check.recipe_differs(run, record):
        lines += _of_settings(*recipes_differ, "recipe.")
    return lines


def _of_settings(
    recorded: dict[str, Any], expected: dict[str, Any], where: str = ""
) -> Iterator[str]:
    """Yield a line for each setting that differs, with its old and new value."""
    for key in dict.fromkeys([*expected, *recorded]):
        name, old, new = f"{where}{key}", recorded.get(key), expected.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _of_settings(old, new, f"{name}.")
        elif old != new:
            yield f"{name.replace('.options', '')}: {old} -> {new}"


def _of_code(folder: ResultsFolder, run: Run, code: str) -> str:
    """Return the files that have changed, been added or are gone, as a text."""
    try:
        before = read_json(_code_file(folder, code))
    except (OSError, ValueError):
        return "another version, whose files were not recorded"
    now = fingerprint.files_of_run(run)
    changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    return ", ".join(module.replace(".", "/") + ".py" for module in changed)


def _short(text: str | None) -> str:
    return str(text) if text is None or len(text) < 40 else f"{text[:36]}..."
