"""Paths in the results of a config, and which of them exist."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores import files
from allcores.files import KeptDigests, write_text
from allcores_study.config import registry
from allcores_study.config.run import PATH, Conditions, digest
from allcores_study.records import fingerprint
from allcores_study.records.identity import Record
from allcores_study.records.run_files import METRICS, RunFolder, Store, StoredRun, stored

if TYPE_CHECKING:
    from allcores_study.config.candidates import Selection
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
    "plan",
    "recipes",
    "runs",
    "selections",
    "short_runs",
    "studies",
)
# The file in a results folder that names the config files it belongs to.
ORIGIN = "config.txt"
# The suffix of all files of a checkpoint.
SUFFIX = ".allcores"
# The file that lists the final models of a study, in its folder.
FINAL_MODELS = "final/models.json"
PROGRESS = "progress.jsonl"  # in the folder of an unfinished run
# The files of a finished run.
RUN_FILES = ("metrics.json", "epochs.csv", "utilisation.csv", "predictions.parquet", "weights.pt")


@dataclass(frozen=True)
class ResultsFolder:
    """The folder of the results of one config.

    Attributes:
        path: relative to the working directory, such as "results/default".
    """

    path: str

    def config(self, config: dict[str, Any]) -> str:
        """Return the file of a config with values from --config, named by its digest."""
        return f"{self.path}/configs/{digest(json.dumps(config))}.json"

    @property
    def tried_out(self) -> str:
        """The file of what samples took in the smoke tests of models, see preflight."""
        return f"{self.path}/tried_out.json"

    @property
    def recipe(self) -> str:
        """The file of the measured recipe of runs with `auto`, with wildcards.

        All candidates of a sweep share one, so that they differ only in what varies.
        """
        return f"{self.path}/recipes/{{dataset}}/{{family}}_{{measured}}.json"

    def recipe_of(self, run: Run, table: Table) -> str:
        """Return the file of the recipe of a Run of a grid.Table."""
        names = {"dataset": run.dataset.label, "family": table.family(run)}
        return self.recipe.format(**names, measured=run.recipe_group)

    def plan_file(self, name: str) -> str:
        """Return a file or folder of the plan, which is made before runs are trained."""
        return f"{self.path}/plan/{name}"

    def call_file(self, name: str) -> str:
        """Return a file or folder that a snakemake invocation writes about itself."""
        return f"{self.path}/calls/{name}"

    def shared_job(self, call: str, number: int | str, suffix: str) -> str:
        """Return a file of a shared job.

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
            name: what the job makes: path of a run or a Selection, label of a dataset.
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

    def progress(self, path: str) -> str:
        """Return the progress file of a run with a job of its own, there until that ends."""
        return f"{self.run(path)}/{PROGRESS}"

    def has(self, path: str) -> bool:
        """Return whether the results of a run are there."""
        is_there = all(Path(self.run(path), file).exists() for file in RUN_FILES)
        return is_there or path in self.store.runs

    def run_files(self, path: str) -> RunFolder | StoredRun:
        """Return the StoredRun of a run, or else its RunFolder, even if that is missing."""
        own = RunFolder(self.run(path))
        return own if (own.place / METRICS).exists() else self.store.runs.get(path, own)

    def record(self, path: str) -> Record | None:
        """Return the Record of the results of a run; None: there are none, or they are damaged.

        Its content is reduced to what decides whether it is valid, such as Conditions and digest.
        """
        run_files = self.run_files(path)
        if isinstance(run_files, StoredRun):
            return run_files.record
        try:
            return Record(**self.digests.of(self.metrics(path)))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def damaged_file(self, path: str) -> Path | str | None:
        """Return the first file of a run that is gone or not what the run wrote, or None."""
        run_files = self.run_files(path)
        if isinstance(run_files, StoredRun):
            if not run_files.file.is_file():
                return run_files.file
            known = self.digests.of(run_files.file)  # for the lines that existed then
            return known[path] if path in known else run_files.damaged_file()
        metrics, record = Path(self.metrics(path)), self.record(path)
        return record.damaged_file(metrics.parent, self.digests.of) if record else metrics

    def is_of_an_earlier_version(self, path: str) -> bool:
        """Return whether a run's metrics.json is sound, but not as this version writes it."""
        with contextlib.suppress(OSError, ValueError):
            return "made_of" not in files.read_json(self.metrics(path))
        return False

    @property
    def store(self) -> Store:
        """The run_files.Store of its short runs."""
        return _store(self.path)

    def keep(self, name: str, path: str, folder: str | Path) -> None:
        """Move the files of a short run from a folder into the store; see Store.add()."""
        self.store.add(name, path, folder, lambda record: _at_hand(record, Path(folder, METRICS)))
        shutil.rmtree(self.run(path), ignore_errors=True)  # of an earlier run with its own job

    @property
    def digests(self) -> KeptDigests:
        """KeptDigests of the files in the folder, see _recorded()."""
        return _digests(self.path)

    def without_missing(self, table: Table) -> Table:
        """Return a grid.Table without runs that lack results or Selections that need them."""
        missing = {path for path in self.wanted_paths(table) if not self.has(path)}
        undecided = [
            path
            for path, selection in table.selections.items()
            if not self.chosen_path(selection) or not missing.isdisjoint(self._wanted(selection))
        ]
        return table.without(missing, undecided)

    def data(self, run: Run) -> str:
        return self.dataset(run.dataset.label)

    def dataset(self, label: str) -> str:
        """Return the folder of a prepared dataset."""
        return f"{self.path}/data/{label}"

    def checkpoints(self, run: Run) -> str:
        full_run = dataclasses.replace(run, stop_after=None)  # it continues from shorter ones
        return f"{self.path}/checkpoints/{full_run.path}"

    def discard_checkpoints(self, run: Run) -> None:
        """Delete the checkpoints of a run, unless another run continues from them."""
        lock = Path(self.checkpoints(run), f"lock{SUFFIX}")
        # None are left, or a run of another study uses them.
        with contextlib.suppress(FileNotFoundError, BlockingIOError), lock.open("r+") as file:
            files.hold(file, wait=False)
            if os.fstat(file.fileno()).st_nlink:  # 0: another choice has deleted them meanwhile
                for checkpoint in lock.parent.glob(f"*{SUFFIX}"):
                    checkpoint.unlink()
                lock.parent.rmdir()

    @property
    def slurm_logs(self) -> str:
        """The folder of the output files of SLURM jobs, in addition to their logs."""
        return f"{self.path}/logs/slurm"

    def selection(self, path: str = "{selection}") -> str:
        """Return the file of the candidates that a Selection keeps, by its path."""
        return f"{self.path}/selections/{path}.json"

    def made_of_choice(self, selection: Selection, metric: str) -> str:
        """Return a digest of all that decides what a Selection keeps.

        That is the code, the scores and the previous choice, all of which must be there.

        Args:
            metric: name of the metric that is compared.
        """
        code = fingerprint.of_script("select_candidate", registry.metric(metric).module)
        paths = list(chain(*self.scored_paths(selection).values()))  # type: ignore[union-attr]
        scores = self.digests_of_results(paths)
        earlier = selection.previous and self.digests.of(self.selection(selection.previous.path))
        search = selection.search and dataclasses.asdict(selection.search)
        return digest(json.dumps([code, metric, scores, earlier, search, selection.suggests]))

    def digests_of_results(self, paths: Iterable[str]) -> dict[str, str | None]:
        """Return path -> digest of each run's results; None: there are none."""
        records = ((path, self.record(path)) for path in paths)
        return {path: record and record.content["sha256"] for path, record in records}  # type: ignore[misc]

    def kept_labels(self, selection: Selection) -> list[str] | None:
        """Return the labels of candidates that a Selection keeps; None: not known yet."""
        labels = self.choice_made(selection).get("kept", [None])
        return labels if set(labels) <= set(selection.final) else None

    def suggested(self, selection: Selection) -> dict[str, dict[str, Any]]:
        """Return label -> {name: value} of the candidates that a Selection suggests, if known."""
        suggested, search = self.choice_made(selection).get("suggested", {}), selection.search
        # Another space may have been searched before.
        names = search and search.space.keys()
        return {label: values for label, values in suggested.items() if values.keys() == names}

    def choice_made(self, selection: Selection) -> dict[str, Any]:
        """Return what a Selection has recorded, see analysis.selection; {}: it is not made yet."""
        return Record.content_of(self.selection(selection.path))

    def chosen_path(self, selection: Selection) -> str | None:
        """Return the path of the final run of a Selection; None: not known yet."""
        labels = self.kept_labels(selection)
        return selection.final[labels[0]] if labels else None

    def scored_paths(self, selection: Selection) -> dict[str, list[str]] | None:
        """Return label -> paths of the inner runs of the candidates that a Selection compares.

        These are all candidates, or those that the previous Selection has kept; None: not known
        yet.
        """
        if not selection.previous:
            return selection.inner
        labels = self.kept_labels(selection.previous)
        is_known = labels is not None and set(labels) <= set(selection.inner)
        return {label: selection.inner[label] for label in labels} if is_known else None  # type: ignore[union-attr]

    def wanted_paths(self, table: Table) -> list[str]:
        """Return the paths of the runs of a grid.Table that are to be trained.

        Where a choice is not made yet, the first candidates stand in for those that will be chosen.
        """
        selected = [
            path for selection in table.selections.values() for path in self._wanted(selection)
        ]
        return list(dict.fromkeys([*table.required, *selected]))

    def _wanted(self, selection: Selection) -> Iterator[str]:
        yield from chain(*selection.rungs[0].inner.values())
        for rung in selection.rungs:
            yield from rung.paths_after(self.kept_labels(rung))

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


@functools.cache
def _store(folder: str) -> Store:
    return Store(Path(folder) / "short_runs")


def _recorded(path: str | Path) -> str | dict[str, Any]:
    """Return the digest of a file.

    For a metrics.json, it is what is needed of its Record; for a store, the first damaged file of
    each run.
    """
    path = Path(path)
    if path.suffix == ".bin":
        return {run.path: run.damaged_file() for run in stored(path.with_suffix(".jsonl"))}
    if path.name != METRICS:
        return files.sha256(path)
    return dataclasses.asdict(_at_hand(Record.read(path), path))


def _at_hand(record: Record, path: Path) -> Record:
    """Return the Record of a run with only the content that decides whether it is valid."""
    names = [field.name for field in dataclasses.fields(Conditions)]
    content = {
        "conditions": {name: record.content["conditions"][name] for name in names},
        "recipe": record.content["recipe"],
        "processor": record.content["machine"]["processor"],
        "sha256": files.sha256(path),
    }
    return dataclasses.replace(record, content=content)


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
