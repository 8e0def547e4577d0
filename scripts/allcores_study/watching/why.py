"""Why a run would be retrained: which setting, which code, which data."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores_study.data import folds, storage
from allcores_study.records import fingerprint, identity, run_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from allcores_study.config.run import Run
    from allcores_study.watching.ledger import Ledger, UpToDateCheck


def lines(ledger: Ledger) -> Iterator[str]:
    """Yield each reason why runs would be trained, with the runs that it applies to."""
    runs_of = defaultdict(list)
    for path in ledger.table.runs:
        if run_reasons := reasons(ledger.check, path):
            runs_of["\n    ".join(run_reasons)].append(path)
    for reason, paths in runs_of.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield f"{paths[0]}{more}:\n    {reason}"
    if not runs_of:
        yield "all runs are up to date with the config"


def reasons(check: UpToDateCheck, path: str) -> list[str]:
    """Return lines on why the run at a path would be trained; none if it would not be.

    Args:
        check: of the run's table.
    """
    folder, table = check.folder, check.table
    if not folder.has(path):
        return ["has not been trained, or not to its end"]
    if damaged := folder.damaged_file(path):
        return [f"{damaged} is gone, or is not what this version writes"]
    selection = table.selections.get(path)
    if selection and not check.is_choice_up_to_date(selection):
        return ["its candidate is to be chosen again: inner runs or the choice have changed"]
    record, run = folder.record(path), folder.run_at(table, path)
    assert record is not None, "it is neither gone nor damaged"
    recorded = run_files.metrics(folder.run(path))["identity"]
    before_data = {part: recorded.get(part, "") for part in identity.before_data(run)}
    is_other = check.made_of(run, before_data) != record.made_of
    try:
        expected = _wanted(run, Path(folder.data(run)), recorded)
    except ValueError as error:
        # Damaged data are rebuilt. If their files come out the same, nothing is retrained.
        return [f"data: {error}"] if is_other else []
    then, now = (json.loads(str(of["settings"])) for of in (recorded, expected))
    lines = list(_of_settings(then, now))
    alike = dataclasses.replace(run, stacked=then.get("stacked"))  # which decides what is reached
    if recorded["code"] != fingerprint.of_run(alike):
        lines.append("code: allcores has changed, or a file of yours that the run uses")
    if edited := fingerprint.changed(record.loaded):
        lines.append(f"code: {', '.join(edited)}, loaded by the run")
    if is_other:
        lines.append("data: the dataset is now made from other files, options or code")
    for part in ("torch", "estimator", "inputs", "targets", "folds"):
        then, now = recorded.get(part), expected.get(part)
        if then != now:
            lines.append(f"{part}: {_short(then)} -> {_short(now)}")
    if not check.has_what_is_asked(path, record):
        asked = table.conditions[path]
        missing = [key for key in ("curves", "exclusive") if getattr(asked, key)]
        lines.append(f"now with {' and '.join(missing or ['another metric to choose by'])}")
    return lines


def _wanted(run: Run, folder: Path, recorded: dict[str, str | None]) -> dict[str, str | None]:
    """Return the identity that a run should have on its prepared dataset.

    If that no longer exists, it is that on the data that the run was trained on.

    Args:
        folder: of the dataset.
        recorded: the identity in the run's metrics.json.

    Raises:
        ValueError: the prepared data are damaged, or the folds belong to other data.
    """
    if not (folder / "dataset.json").exists():
        return recorded | identity.before_data(run)
    key = folder, run.folds_file, run.fold if run.inner_folds else None
    if key not in _folds:  # many runs share datasets and folds
        file = folder / str(run.folds_file)
        assigned = file if file.exists() else None  # without it, the same are assigned again
        _folds[key] = folds.of_run(run, folds.Assignable.of(_open(folder)), assigned)
    return identity.of_run(run, _open(folder).record, _folds[key])


@functools.cache
def _open(folder: Path) -> storage.Dataset:
    return storage.open_dataset(folder)


_folds: dict[tuple[Path, str | None, int | None], np.ndarray | None] = {}


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


def _short(text: str | None) -> str:
    return str(text) if text is None or len(text) < 40 else f"{text[:36]}..."
