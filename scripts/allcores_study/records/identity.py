"""A run's identity: everything that decides its weights.

A run resumes only if all of its identity is equal. Whether it is rerun, and whether its results
are collected, is decided by made_of(), which does not need its data.

* `settings`: the Run as JSON;
* `code`: the fingerprint of the code that the run can reach;
* `torch`: the version of torch; for an estimator also `estimator`, its package with the version;
* `inputs`, `targets`, `folds`: SHA-256 of the data; `folds` is None for the dataset's test set.

Two more things are recorded. What is scored (Conditions.curves) retrains a run only if more is
wanted than there is. How it was measured (Conditions.exclusive, pinning, the machine, the build of
torch) changes no weights: a run that must be timed alone is repeated if it was not, and only
timings under the same conditions are compared.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.files import read_json, write_json
from allcores_study.records import fingerprint

if TYPE_CHECKING:
    import numpy as np

    from allcores_study.config.run import Run

# The parts of every record besides its content.
PARTS = ("made_of", "files", "loaded")


@dataclass(frozen=True)
class Record:
    """A JSON file beside the files that were made with it.

    It contains all that decides whether these are still valid (watching/ledger.py): never times.

    Attributes:
        made_of: a digest of all that decides them.
        files: name of each of the other files, relative to the record's folder -> its SHA-256.
        loaded: fingerprint.loaded(): the user's modules that were in use.
        content: whatever else it contains.
    """

    made_of: str
    files: dict[str, str] = field(default_factory=dict)
    loaded: dict[str, str | None] = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> Record:
        """Return the Record in a file.

        Raises:
            ValueError: it is damaged, or not a record.
            OSError: it cannot be read.
        """
        content = read_json(path)
        try:
            return cls(*(content.pop(part) for part in PARTS), content)  # type: ignore[call-arg]
        except KeyError as error:
            raise ValueError(f"{path} has no {error}") from None

    @classmethod
    def content_of(cls, path: str | Path) -> dict[str, Any]:
        """Return the content of the Record in a file; {}: it is missing or damaged."""
        try:
            return cls.read(path).content
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def write(self, path: str | Path, indent: int | None = 1) -> None:
        write_json(path, {part: getattr(self, part) for part in PARTS} | self.content, indent)

    def is_up_to_date(self, made_of: str) -> bool:
        """Return whether it was made of this, and no user's module was edited since."""
        return self.made_of == made_of and not fingerprint.changed(self.loaded)

    def damaged_file(self, folder: str | Path, digest: Callable[[Path], str | None]) -> Path | None:
        """Return the first of the files that is gone or not as it was written; None: there is none.

        Args:
            folder: folder of the record.
            digest: function that returns the SHA-256 of a file; None: there is none.
        """
        for name, expected in self.files.items():
            file = Path(folder, name)
            try:
                is_sound = digest(file) == expected
            except OSError:  # gone, or not a file
                is_sound = False
            if not is_sound:
                return file
        return None


def before_data(run: Run) -> dict[str, str]:
    """Return the part of a Run's identity that is known before its data."""
    return {
        "settings": run.to_json(),
        "code": fingerprint.of_run(run),
        "torch": version_of_torch(),
        **({"estimator": _version_of_estimator(run.model.name)} if run.is_estimator else {}),
    }


def made_of(known: dict[str, str], data_made_of: str) -> str:
    """Return a digest of all that decides the weights of a Run and is known before its data.

    Args:
        known: before_data() of the Run.
        data_made_of: data.preparation.made_of() of its dataset.
    """
    return hashlib.sha256(_text([known, data_made_of]).encode()).hexdigest()[:32]


def of_run(run: Run, record: Record, fold_of: np.ndarray | None) -> dict[str, str | None]:
    """Return the identity of a Run on a dataset.

    Args:
        record: the Record of the dataset, see data.storage.read_record().
        fold_of: the fold of each training sample, (N,) int64; None: the dataset's own test set is
            held out.

    Returns:
        The parts of the identity; `folds` may be None.
    """
    digests, info = record.files, record.content
    other_digests = {name: digests.get(f"{name}.npy") for name in ("groups", "times")}
    inputs: dict[str, Any] = {"sha256": digests["inputs.npy"]}
    inputs |= {key: info.get(key) for key in ("train", "columns")}
    if info["known_tokens"]:
        inputs["vocabulary"] = info["known_tokens"]
    inputs |= {name: digest for name, digest in other_digests.items() if digest}
    targets = {"sha256": digests["targets.npy"], "names": info["names"]}
    folds = None if fold_of is None else hashlib.sha256(fold_of.tobytes()).hexdigest()
    return before_data(run) | {"inputs": _text(inputs), "targets": _text(targets), "folds": folds}


def differences(other: dict[str, Any], identity: dict[str, Any]) -> list[str]:
    """Return what differs between two identities: ["epochs", "the code", ...]."""
    parts = [
        f"the {key}" for key in identity if key != "settings" and other.get(key) != identity[key]
    ]
    theirs, ours = json.loads(other["settings"]), json.loads(identity["settings"])
    return [key for key in ours if theirs.get(key) != ours[key]] + parts


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@functools.cache
def _version_of_estimator(path: str) -> str:
    """Return scikit-learn, and another package of the import path, with their versions."""
    package = path.partition(":")[0].partition(".")[0]
    names = {"scikit-learn"}
    if package != "sklearn":
        names |= {*importlib.metadata.packages_distributions().get(package, ())}
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(names))


@functools.cache
def version_of_torch() -> str:
    """Return torch's version without its build suffix, such as +cpu; does not import torch."""
    return importlib.metadata.version("torch").partition("+")[0]
