"""Paths in the results of a config, and which of them exist."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores import files
from allcores.files import KeptDigests, write_text
from allcores_study.config import registry
from allcores_study.config.run import PATH, Conditions, digest
from allcores_study.records.identity import Record
from allcores_study.records.run_files import METRICS

if TYPE_CHECKING:
    from allcores_study.config.grid import Table
    from allcores_study.config.run import Run

# Other folders in results/.
RESERVED = ("bench", "by_hand", "default", "downloads")
# Folders in the results of a config.
PARTS = (
    "calls",
    "checkpoints",
    "configs",
    "data",
    "logs",
    "runs",
    "selections",
    "studies",
)
# The file in a results folder that names the config files it belongs to.
ORIGIN = "config.txt"
# The suffix of all files of a checkpoint.
SUFFIX = ".allcores"
# The final models of a study, in its folder, and the file that lists them.
FINAL_FOLDER = "final"
FINAL_MODELS = f"{FINAL_FOLDER}/models.json"
JOB = "job"  # stem of the files of a job that trains one run, in the folder of that run


@dataclass(frozen=True)
class ResultsFolder:
    """The folder of the results of one config.

    Attributes:
        path: relative to the working directory, such as "results/default".
    """

    path: str

    def config(self, config: dict[str, Any]) -> str:
        """Return the file of an invocation's whole config, named by its digest."""
        return f"{self.path}/configs/{digest(json.dumps(config))}.json"

    @property
    def tried_out(self) -> str:
        """The file of what samples took in the smoke tests of models, see preflight."""
        return f"{self.path}/tried_out.json"

    def call_file(self, name: str) -> str:
        """Return a file or folder that a snakemake invocation writes about itself."""
        return f"{self.path}/calls/{name}"

    def shared_job(self, call: str, number: int | str, suffix: str) -> str:
        """Return a file of a job that trains several runs.

        The suffixes are json (its runs), log, jsonl (their progress) and done (its mark: they are
        trained). The name of the invocation makes the mark new, so that Snakemake has to make it.

        Args:
            call: name of the invocation that trains the runs.
            number: number of the job in that invocation.
        """
        return f"{self.path}/calls/{call}/{number}.{suffix}"

    def log(self, rule: str, name: str) -> str | None:
        """Return the latest log of a job; None: there is none.

        Args:
            rule: name of its rule.
            name: what the job makes: path of a run, label of a dataset.
        """
        stem = Path(self.path, "logs", rule, name)
        logs = stem.parent.glob(f"{stem.name}.{'[0-9a-f]' * 8}*.log")
        return max(map(str, logs), key=os.path.getmtime, default=None)

    def report_log(self, study: str) -> str:
        """Return the log of the job that makes the results of a study."""
        return f"{self.path}/logs/report/{study}.log"

    def run(self, path: str = PATH) -> str:
        return f"{self.path}/runs/{path}"

    def metrics(self, path: str = PATH) -> str:
        """Return the record of a run, which is written after its other files."""
        return f"{self.run(path)}/metrics.json"

    def job(self, path: str, suffix: str) -> str:
        """Return a file of the job that trains one run: json (the run) or jsonl (its progress)."""
        return f"{self.run(path)}/{JOB}.{suffix}"

    def has(self, path: str) -> bool:
        """Return whether there are results of a run, valid or not."""
        return Path(self.metrics(path)).exists()

    def record(self, path: str) -> Record | None:
        """Return the Record of the results of a run; None: there are none, or they are damaged.

        Its content is reduced to what decides whether it is valid, such as Conditions and digest.
        """
        try:
            return Record(**self.digests.of(self.metrics(path)))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def damaged_file(self, path: str) -> Path | None:
        """Return the first file of a run that is gone or not what the run wrote, or None."""
        metrics, record = Path(self.metrics(path)), self.record(path)
        return record.damaged_file(metrics.parent, self.digests.of) if record else metrics

    @property
    def digests(self) -> KeptDigests:
        """KeptDigests of the files in the folder, see _recorded()."""
        return _digests(self.path)

    def data(self, run: Run) -> str:
        return self.dataset(run.dataset.label)

    def dataset(self, label: str) -> str:
        """Return the folder of a prepared dataset."""
        return f"{self.path}/data/{label}"

    def checkpoints(self, run: Run) -> str:
        return f"{self.path}/checkpoints/{run.path}"

    @property
    def slurm_logs(self) -> str:
        """The folder of the output files of SLURM jobs, in addition to their logs."""
        return f"{self.path}/logs/slurm"

    def selection(self, path: str) -> str:
        """Return the file of what was chosen for the chosen run at a path."""
        return f"{self.path}/selections/{path}.json"

    def choice_made(self, path: str) -> dict[str, Any]:
        """Return what a chosen run has recorded, see training.choosing; {}: nothing yet."""
        return Record.content_of(self.selection(path))

    def run_at(self, table: Table, path: str) -> Run:
        """Return the Run at a path of a grid.Table; of a chosen one, with the chosen candidate.

        If it is not chosen yet, the first candidate stands in.
        """
        selection = table.selections.get(path)
        chosen = selection and selection.outer.get(self.choice_made(path).get("chosen", ""))
        return chosen or table.runs[path]

    def digests_of_results(self, paths: Iterable[str]) -> dict[str, str | None]:
        """Return path -> digest of each run's results; None: there are none."""
        records = ((path, self.record(path)) for path in paths)
        return {path: record and record.content["sha256"] for path, record in records}  # type: ignore[misc]

    def study(self, name: str) -> str:
        return f"{self.path}/studies/{name}"

    def csv(self, study: str, name: str) -> str:
        """Return the file of a tidy CSV or a table of a study."""
        return f"{self.study(study)}/{name}.csv"


@functools.cache
def _digests(folder: str) -> KeptDigests:
    """Return the KeptDigests of results and reports, saved for the next invocation."""
    digests = KeptDigests(Path(folder) / "digests.json", _recorded)
    atexit.register(digests.save)
    return digests


def _recorded(path: str | Path) -> str | dict[str, Any]:
    """Return the digest of a file; for a metrics.json, what is needed of its Record."""
    path = Path(path)
    if path.name != METRICS:
        return files.sha256(path)
    record = Record.read(path)
    names = [field.name for field in dataclasses.fields(Conditions)]
    content = {
        "conditions": {name: record.content["conditions"][name] for name in names},
        "scored_by": record.content.get("scored_by", {}),
        "sha256": files.sha256(path),
    }
    return dataclasses.asdict(dataclasses.replace(record, content=content))


def name_of(files: Sequence[str | Path]) -> str:
    """Return the name of a config, under which its results lie in results/.

    It is the name of its file without the suffix, after the folders below `config` if it is in a
    folder of that name: "mine" for mine.yaml, config/mine.yaml and /home/me/study/mine.yaml,
    "miniature/kfold" for config/miniature/kfold.yaml. It is "default" for the project's config, and
    for a config without a file, from a workflow that has this one as a module. The names of several
    files are joined by +.

    Args:
        files: files of the config.

    Raises:
        ValueError: the name is reserved, or is not valid for a folder.
    """
    default = registry.CONFIG.resolve()
    if not files or [Path(file).resolve() for file in files] == [default]:
        return "default"
    name = "+".join(_name_of_file(Path(file).absolute()) for file in files)
    first, *inner = name.split("/")
    if (
        first in RESERVED
        or set(inner) & set(PARTS)
        or not re.fullmatch(r"(\w[\w.+-]*/)*\w[\w.+-]*", name)
    ):
        raise ValueError(
            f"{', '.join(map(str, files))}: its results would lie in results/{name}; expected a "
            "file name that begins with a letter or digit, has only letters, digits, _, -, + and "
            f"., and is none of {', '.join((*RESERVED, *PARTS))}"
        )
    return name


def _name_of_file(file: Path) -> str:
    folders = file.parts[:-1]
    if "config" in folders:
        last = len(folders) - 1 - folders[::-1].index("config")
        return "/".join([*folders[last + 1 :], file.stem])
    return file.stem


def note_origin(files: Iterable[str | Path], folder: str | Path) -> None:
    """Record in a folder of results which config files it belongs to."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_text(Path(folder) / ORIGIN, _origin(files))


def _origin(files: Iterable[str | Path]) -> str:
    return "\n".join(os.path.relpath(file) for file in files)


def _owner(file: Path) -> str:
    try:
        return file.owner()
    except KeyError:  # it has only a number
        return f"user {file.stat().st_uid}"


def foreign(files: Iterable[str | Path], folder: str | Path) -> list[str]:
    """Return [a finding] if a folder holds results of other config files of the same name, else [].

    For instance, mine.yaml and config/mine.yaml share a name.
    """
    origin_file, origin = Path(folder) / ORIGIN, _origin(files)
    try:
        recorded = origin_file.read_text(errors="replace") if origin_file.exists() else origin
    except PermissionError:
        return [
            f"{origin_file} cannot be read; ask {_owner(origin_file)} to run "
            f"`chmod -R g+r {folder}`"
        ]
    if recorded == origin:
        return []
    return [
        f"{folder} holds the results of {recorded!r}, not of {origin!r}; rename the "
        f"config, or delete {origin_file} if it is the same study"
    ]
