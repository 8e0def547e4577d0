"""The files of a run: in a folder of its own or, for a short run, in a store.

A store is two files that a shared job adds to: NAME.jsonl has a line for each run, which
pandas.read_json(file, lines=True) reads as a table; NAME.bin has the runs' files one after the
other, compressed. So the number of files grows with jobs, not with runs.
"""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allcores.files import CHECKSUM, checksum, parse_json, sha256_of
from allcores_study.records.identity import Record

METRICS = "metrics.json"
NAME = re.compile("[0-9a-f]+_[0-9]+")  # of a store: invocation and number of the job
# The scores in a line of a store, for those who read it as a table.
SHOWN = ("accuracy", "r2", "loss", "training_seconds", "train_samples", "held_out_samples")


class RunFolder:
    """The files of a run in a folder of its own."""

    def __init__(self, place: str | Path) -> None:
        self.place = Path(place)

    def __str__(self) -> str:
        return str(self.place)

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            OSError: there is none.
        """
        return (self.place / name).read_bytes()


@dataclass(frozen=True)
class StoredRun:
    """The files of a run in a store.

    Attributes:
        path: path of the run.
        file: NAME.bin.
        record: its Record, with some of its content.
        at: name of each file -> offset of its first byte in NAME.bin, and number of bytes.
    """

    path: str
    file: Path
    record: Record
    at: dict[str, list[int]]

    def __str__(self) -> str:
        return f"{self.path} in {self.file}"

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            ValueError: it is damaged.
            KeyError, OSError: there is none.
        """
        first, count = self.at[name]
        with self.file.open("rb") as file:
            file.seek(first)
            content = file.read(count)
        try:
            return zlib.decompress(content)
        except zlib.error:
            raise ValueError(f"{name} of {self} is not what the run wrote") from None

    def damaged_file(self) -> str | None:
        """Return the first of its files that is gone or not what the run wrote, or None."""
        return next((f"{self}: {name}" for name in self.at if not self._is_sound(name)), None)

    def _is_sound(self, name: str) -> bool:
        try:
            digest = sha256_of(self.read(name))
        except (ValueError, OSError):
            return False
        return digest == (self.record.files | {METRICS: self.record.content["sha256"]})[name]


def metrics(run_files: RunFolder | StoredRun) -> dict[str, Any]:
    """Return the content of a run's metrics.json.

    Raises:
        ValueError: it is damaged, or was changed since.
        OSError: there is none.
    """
    return parse_json(run_files.read(METRICS), f"{run_files}/{METRICS}")


def checked(run_files: RunFolder | StoredRun, run: dict[str, Any], name: str) -> bytes:
    """Return the content of a run's file once it is known to be what the run wrote.

    Args:
        run: its metrics().

    Raises:
        ValueError: it is gone, or was changed since it was written.
    """
    try:
        content = run_files.read(name)
    except (OSError, KeyError):
        content = b""
    if sha256_of(content) != run["files"][name]:
        raise ValueError(
            f"{run_files}/{name} is gone, or is not what the run wrote; delete {run_files} to "
            "rerun it"
        )
    return content


def results_of(run_files: RunFolder | StoredRun) -> Path | None:
    """Return the folder of a config's results that has a run; None: it is in none."""
    if isinstance(run_files, StoredRun):
        return run_files.file.parent.parent
    above = [place for place in run_files.place.absolute().parents if place.name == "runs"]
    return above[0].parent if above else None


def withdraw_stored(folder: str | Path) -> None:
    """Mark earlier results of a run in a store as superseded, because it was trained again.

    Args:
        folder: folder of its new results.
    """
    for runs in [place for place in Path(folder).absolute().parents if place.name == "runs"][:1]:
        path = str(Path(folder).absolute().relative_to(runs))
        for index in Store(runs.parent / "short_runs").files:
            if json.dumps(path).encode() in index.read_bytes():
                _withdraw(index, path)


def at(folder: str | Path) -> RunFolder | StoredRun:
    """Return the RunFolder of a run, or the StoredRun whose folder that would be."""
    found = below(folder)
    return found[0] if len(found) == 1 else RunFolder(folder)


def below(folder: str | Path) -> list[RunFolder | StoredRun]:
    """Return the RunFolders and StoredRuns in a folder, sorted by their paths.

    Args:
        folder: folder of a run, of several, or of the results of a config. If it is in their runs/,
            the stored runs whose paths begin there count as in it.
    """
    folder = Path(folder)
    own = sorted(file.parent for file in folder.rglob(METRICS))
    place = folder.absolute()
    above = [runs for runs in (place, *place.parents) if runs.name == "runs"]
    results = above[0].parent if above else place
    first = place.relative_to(above[0]).parts if above else ()
    stored_runs = Store(results / "short_runs").runs
    paths = sorted(path for path in stored_runs if Path(path).parts[: len(first)] == first)
    names = {str(one.absolute()) for one in own}
    others = [stored_runs[path] for path in paths if str(results / "runs" / path) not in names]
    return [*map(RunFolder, own), *others]


class Store:
    """The short runs of the results of a config.

    Args:
        folder: folder of its files.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._runs: dict[str, StoredRun] | None = None

    @property
    def runs(self) -> dict[str, StoredRun]:
        """Path -> StoredRun, as of the last read_again(); of several, the one written last."""
        if self._runs is None:
            indices = sorted(self.files, key=lambda file: _place(file.stem))
            self._runs = {run.path: run for file in indices for run in stored(file)}
        return self._runs

    @property
    def files(self) -> list[Path]:
        """The NAME.jsonl of each job that has added runs."""
        return [file for file in self.folder.glob("*.jsonl") if NAME.fullmatch(file.stem)]

    def of_job(self, name: str) -> set[str]:
        """Return paths of the runs that a job, CALL_NUMBER, added, even if another has since."""
        index = self.folder / f"{name}.jsonl"
        return {line["path"] for line in _lines(index)} if index.exists() else set()

    def read_again(self) -> None:
        """Forget what was read: other processes have added runs."""
        self._runs = None

    def add(
        self, name: str, path: str, folder: str | Path, summary: Callable[[Record], Record]
    ) -> None:
        """Move the files of a run into the store.

        Args:
            name: CALL_NUMBER of the job; the largest is the last.
            path: path of the run.
            folder: folder of its files, without subfolders; it is deleted.
            summary: function that reduces a Record to the content to keep at hand.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        index, folder = self.folder / f"{name}.jsonl", Path(folder)
        record, at = Record.read(folder / METRICS), {}
        with index.with_suffix(".bin").open("ab") as blobs:
            for file in sorted(folder.iterdir()):
                content = zlib.compress(file.read_bytes(), level=1)
                at[file.name] = [blobs.tell(), len(content)]
                blobs.write(content)
        shown = {key: record.content[key] for key in SHOWN if key in record.content}
        earlier = self.runs.get(path)  # read before the line that replaces it is written
        _append(index, {"path": path} | shown | vars(summary(record)) | {"at": at})
        if earlier and earlier.file.stem != name:
            _withdraw(earlier.file.with_suffix(".jsonl"), path)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def _withdraw(index: Path, path: str) -> None:
    """Mark a run in a NAME.jsonl as superseded.

    Otherwise it would come back when the newer results are deleted.
    """
    _append(index, {"path": path, "superseded": True})


def _append(index: Path, line: dict[str, Any]) -> None:
    """Add a dict with its checksum to a NAME.jsonl."""
    is_cut = index.exists() and index.read_bytes()[-1:] not in (b"\n", b"")
    with index.open("a") as lines:
        text = json.dumps(line | {CHECKSUM: checksum(line)}, allow_nan=False)
        lines.write(("\n" if is_cut else "") + text + "\n")


def _place(name: str) -> tuple[int, int]:
    """Return the sort key of a store's name: invocation, then number of the job."""
    call, _, number = name.partition("_")
    return int(call, 16), int(number)


def stored(index: Path) -> list[StoredRun]:
    """Return the StoredRuns in a NAME.jsonl, without superseded ones and damaged lines."""
    found: dict[str, StoredRun] = {}
    for line in _lines(index):
        path = line["path"]
        if "superseded" in line:
            found.pop(path, None)
            continue
        with contextlib.suppress(KeyError):
            record = Record(*(line[part] for part in ("made_of", "files", "loaded", "content")))
            found[path] = StoredRun(path, index.with_suffix(".bin"), record, line["at"])
    return list(found.values())


def _lines(index: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a NAME.jsonl, dicts with a path."""
    for text in index.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            line = parse_json(text, index)
            if "path" in line:
                yield line
