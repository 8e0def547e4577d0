"""Prepare a dataset, unless it is up to date with its options, code and files."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from allcores import files
from allcores.files import KeptDigests, cache_folder, sha256
from allcores_study.config import registry
from allcores_study.data import storage
from allcores_study.records import fingerprint

if TYPE_CHECKING:
    from allcores_study.config.run import Entry


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
            for note in samples.notes:
                print(f"NOTE: {note}", flush=True)
            storage.write(folder, samples, before, lambda: _refuse_changed(entry, before))


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
    digests, lines = KeptDigests(cache_folder() / "digests.json", _content), []
    for path in paths:
        files = [path] if Path(path).is_file() else files_below(path)
        lines += [f"{os.path.relpath(file, path)} {digests.of(file)}" for file in files]
    digests.save()
    return hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()[:16]


def _content(file: str) -> str:
    """Return a file's SHA-256; for a zip, a digest of its members: numpy.savez stores the time."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            members = [(info.filename, info.file_size, info.CRC) for info in archive.infolist()]
        return hashlib.sha256(repr(members).encode()).hexdigest()
    return sha256(file)


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
