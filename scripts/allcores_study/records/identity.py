"""A run's identity: everything that decides its weights. A run resumes, and its results are
collected, only if all of it is equal. Whether it is trained again is decided earlier, by
made_of(), for which its data need not be there.

* `settings`: the Run as JSON;
* `code`: the fingerprint of the code that the run can reach;
* `torch`: the version of torch; of an estimator `estimator`, its package with the version, too;
* `inputs`, `targets`, `folds`: SHA-256 of the data; `folds` is None for the dataset's test set.

Two things are recorded besides. What is scored (Conditions.curves) retrains only where
more is wanted than there is. How it was measured (Conditions.exclusive, pinning, the
machine, the build of torch) changes no weights: a run that must be timed alone is repeated if it
was not, and only timings under the same conditions are compared.
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

# Of every record, beside what it says.
PARTS = ("made_of", "files", "loaded")


@dataclass(frozen=True)
class Record:
    """A JSON file beside the files that were made with it. Whether these are still valid is decided
    by it alone: by content, never by the times of files.

    Attributes:
        made_of: a digest of all that decides them.
        files: name of each of the other files, relative to the record's folder -> its SHA-256.
        loaded: fingerprint.loaded(): the user's modules that were in use.
        content: what it says besides.
    """

    made_of: str
    files: dict[str, str] = field(default_factory=dict)
    loaded: dict[str, str | None] = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> Record:
        """The Record in a file.

        Raises:
            ValueError: it is damaged, or is no record.
            OSError: it cannot be read.
        """
        content = read_json(path)
        try:
            return cls(*(content.pop(part) for part in PARTS), content)  # type: ignore[call-arg]
        except KeyError as error:
            raise ValueError(f"{path} has no {error}. Delete it to make it again") from None

    @classmethod
    def content_of(cls, path: str | Path) -> dict[str, Any]:
        """The content of the Record in a file; {}: there is none, or it is damaged."""
        try:
            return cls.read(path).content
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def write(self, path: str | Path, indent: int | None = 1) -> None:
        write_json(path, {part: getattr(self, part) for part in PARTS} | self.content, indent)

    def is_up_to_date(self, made_of: str) -> bool:
        """Whether it was made of this, and no module of the user's was edited since."""
        return self.made_of == made_of and not fingerprint.changed(self.loaded)

    def damaged_file(self, folder: str | Path, digest: Callable[[Path], str]) -> Path | None:
        """The first of the files that is gone or is not what was written; None: there is none.

        Args:
            folder: of the record.
            digest: function of a file that returns its SHA-256.
        """
        for name, expected in self.files.items():
            file = Path(folder, name)
            try:
                is_sound = digest(file) == expected
            except OSError:  # gone, or no file
                is_sound = False
            if not is_sound:
                return file
        return None


def before_data(run: Run) -> dict[str, str]:
    """The part of a Run's identity that is known before its data: a dict of texts."""
    return {
        "settings": run.to_json(),
        "code": fingerprint.of_run(run),
        "torch": version_of_torch(),
        **({"estimator": _version_of_estimator(run.model.name)} if run.is_estimator else {}),
    }


def made_of(known: dict[str, str], data_made_of: str) -> str:
    """A digest of all that decides the weights of a Run and is known before its data.

    Args:
        known: before_data() of the Run.
        data_made_of: data.preparation.made_of() of its dataset.
    """
    return hashlib.sha256(_text([known, data_made_of]).encode()).hexdigest()[:32]


def of_run(run: Run, record: Record, fold_of: np.ndarray | None) -> dict[str, str | None]:
    """The identity of a Run on a dataset.

    Args:
        record: the Record of the dataset, see data.storage.read_record().
        fold_of: the fold of each training sample, (N,) int64; None: the dataset's own test set is
            held out.

    Returns:
        {part: str}; `folds` may be None.
    """
    digests, info = record.files, record.content
    other_digests = {name: digests.get(f"{name}.npy") for name in ("groups", "times")}
    inputs: dict[str, Any] = {"sha256": digests["inputs.npy"]}
    inputs |= {key: info.get(key) for key in ("train", "columns", "scale")}
    if info["vocabulary"]:
        inputs["vocabulary"] = info["vocabulary"]
    inputs |= {name: digest for name, digest in other_digests.items() if digest}
    targets = {"sha256": digests["targets.npy"], "classes": info["classes"]}
    folds = None if fold_of is None else hashlib.sha256(fold_of.tobytes()).hexdigest()
    return before_data(run) | {"inputs": _text(inputs), "targets": _text(targets), "folds": folds}


def differences(other: dict[str, Any], identity: dict[str, Any]) -> list[str]:
    """What differs between two identities: ["epochs", "the code", ...]."""
    parts = [
        f"the {key}" for key in identity if key != "settings" and other.get(key) != identity[key]
    ]
    theirs, ours = json.loads(other["settings"]), json.loads(identity["settings"])
    return [key for key in ours if theirs.get(key) != ours[key]] + parts


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@functools.cache
def _version_of_estimator(path: str) -> str:
    """scikit-learn with its version, and the package of an import path if that is another one."""
    package = path.partition(":")[0].partition(".")[0]
    names = {"scikit-learn"}
    if package != "sklearn":
        names |= {*importlib.metadata.packages_distributions().get(package, ())}
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(names))


@functools.cache
def version_of_torch() -> str:
    """torch's version without its build suffix, such as +cpu; does not import torch."""
    return importlib.metadata.version("torch").partition("+")[0]
