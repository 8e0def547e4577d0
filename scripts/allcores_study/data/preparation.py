"""Load a dataset: once to prepare it, unless it is up to date, and once to know its Facts."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from allcores import files
from allcores.files import KeptDigests, cache_folder, read_json, sha256, write_json
from allcores_study.config import registry
from allcores_study.config.run import digest
from allcores_study.data import storage
from allcores_study.data.facts import Facts
from allcores_study.records import fingerprint

if TYPE_CHECKING:
    from allcores_study.config.run import Entry


# Files with more bytes are read only when they are prepared.
LARGE = 1 << 25


def prepare(entry: Entry, downloads: str | Path, folder: str | Path) -> None:
    """Write the dataset of an Entry into a folder, unless it is up to date; see storage.write().

    If several processes need the same dataset, one prepares it and the others wait.

    Args:
        downloads: folder for the original files, with a subfolder for each dataset.

    Raises:
        ValueError: the original files cannot be obtained, or are not the expected ones.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        files.hold(lock)
        before = made_of(entry)
        if not _is_sound(folder, before):
            load = registry.datasets()[entry.name].load()
            samples = load(Path(downloads) / entry.name, **entry.options)
            task, found = registry.task(entry).name, samples.task.name
            if found != task:
                raise ValueError(f"{entry.name} is for {task}, but load() returns {found}")
            facts = Facts.of(samples)
            for note in facts.notes:
                print(f"NOTE: {note}", flush=True)
            storage.write(folder, samples, before, lambda: _refuse_changed(entry, before))
            _keep(facts, before)


def facts(entry: Entry) -> Facts | None:
    """Return the Facts of the dataset of an Entry; None: it is large, and was never prepared here.

    A small one is loaded, the first time, unless its file says the facts by a function `facts`.

    Raises:
        ValueError, OSError: it cannot be loaded.
    """
    key = json.dumps([entry.name, entry.options], sort_keys=True)
    if key not in _known:
        try:
            found: Facts | Exception | None = _facts(entry)
        except (ValueError, OSError) as error:
            found = error
        if found is None:
            return None  # until it is prepared
        _known[key] = found
    known = _known[key]
    if isinstance(known, Exception):
        raise known
    return known


# What this process knows; a dataset that cannot be loaded is not tried again, either.
_known: dict[str, Facts | Exception] = {}


def _facts(entry: Entry) -> Facts | None:
    component = registry.datasets()[entry.name]
    if constant := getattr(importlib.import_module(component.module), "facts", None):
        return constant(**entry.options)
    of_dataset = made_of(entry)
    try:
        return Facts.from_json(read_json(_file_of_facts(of_dataset)))
    except (OSError, ValueError, TypeError):  # none yet, or damaged
        pass
    files = [file for path in registry.paths(entry).values() for file in _files(path)]
    if sum(file.stat().st_size for file in files) > LARGE:
        return None
    found = Facts.of(component.load()(None, **entry.options))
    _refuse_changed(entry, of_dataset)
    _keep(found, of_dataset)
    return found


def _file_of_facts(of_dataset: str) -> Path:
    """Return the file that keeps the Facts of what made_of() returns, for all configs."""
    return cache_folder() / "facts" / f"{digest(of_dataset)}.json"


def _keep(facts: Facts, of_dataset: str) -> None:
    file = _file_of_facts(of_dataset)
    with contextlib.suppress(OSError):  # it only saves time
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, dataclasses.asdict(facts))


def _refuse_changed(entry: Entry, before: str) -> None:
    """Raise a ValueError if what a dataset is made of has changed since before it was loaded."""
    if made_of(entry) != before:
        raise ValueError(
            f"{entry.options.get('path', entry.name)} was changed while it was being read; run "
            "this again"
        )


def made_of(entry: Entry) -> str:
    """Return the options, code and files that the dataset of an Entry is made of, as one text."""
    return f"{entry.to_json()} {fingerprint.of_dataset(entry)} {sources(entry)}"


def _is_sound(folder: Path, expected: str | None = None) -> bool:
    """Return whether a dataset is undamaged and, if anything is expected, made of that."""
    try:
        record = storage.open_dataset(folder).record
        return expected is None or record.is_up_to_date(expected)
    except ValueError:
        return False


def sources(entry: Entry) -> str:
    """Return a digest of the user's files that a dataset is made from; "": there are none."""
    paths = registry.paths(entry).values()
    if not paths:
        return ""
    digests, lines = KeptDigests(cache_folder() / "digests.json", sha256), []
    for path in paths:
        lines += [f"{os.path.relpath(file, path)} {digests.of(file)}" for file in _files(path)]
    digests.save()
    return hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()[:16]


def _files(path: str) -> list[Path]:
    return [Path(path)] if Path(path).is_file() else files_below(path)


def files_below(folder: str | Path) -> list[Path]:
    """Return all files below a folder, sorted; links to a parent are not followed."""
    return sorted(_files_below(Path(folder), []))


def _files_below(folder: Path, above: list[Path]) -> Iterator[Path]:
    here = folder.resolve()
    if any(place.is_relative_to(here) for place in above):
        return
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files_below(entry, [*above, here])
        elif entry.is_file():
            yield entry
