"""The results of a study: its runs, its files, and its part of the config."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.files import read_json, sha256
from allcores_study.analysis import products
from allcores_study.config import fit, grid, registry, settings, sweeps
from allcores_study.config.run import digest
from allcores_study.data import storage
from allcores_study.data.facts import Facts
from allcores_study.records import fingerprint
from allcores_study.records.identity import Record
from allcores_study.records.results_folder import FINAL_FOLDER, FINAL_MODELS
from allcores_study.records.run_files import METRICS, WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allcores_study.config.grid import Table
    from allcores_study.config.run import Run
    from allcores_study.records.results_folder import ResultsFolder

# The file that records what the others were made of.
MADE = "made.json"
VERDICT = "verdict.txt"  # a sentence per line, the answer first
CHECK = "Please check: "  # how sentences on what may be unintended in the data begin
FINAL_FILES = (METRICS, WEIGHTS)  # of each final model
# Prefix for the CSVs of the study that this one is compared with.
OTHER = "against_"
TIDY = (
    "runs",
    "epochs",
    "staleness",
    "classes",
    "outputs",
    "confusion",
    "utilisation",
    "candidates",
    "importance",
    "missing",
)


@functools.cache
def _templates() -> str:
    """Return the SHA-256 of the pages' templates."""
    files = sorted((registry.LIBRARY / "analysis" / "templates").iterdir())
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


class Study:
    """A study of a config, with its results.

    Args:
        config: the whole config.
        table: the runs of the config.
        folder: the results of the config.
        name: of the study.

    Attributes:
        facts: for its tables, figures and sentences.
    """

    def __init__(
        self, config: dict[str, Any], table: Table, folder: ResultsFolder, name: str
    ) -> None:
        self.config, self.table, self.folder, self.name = config, table, folder, name
        self.facts = products.facts_of(config, name)

    @property
    def place(self) -> str:
        return self.folder.study(self.name)

    @property
    def data(self) -> str:
        """The folder of the prepared datasets."""
        return self.folder.dataset("")

    @property
    def paths(self) -> list[str]:
        return self.table.studies[self.name]

    @property
    def final_paths(self) -> list[str]:
        """The paths of its final runs."""
        return self.table.studies.get(f"{self.name}{grid.FINAL}", [])

    @property
    def final_runs(self) -> list[Run]:
        """Its final runs; chosen ones have the settings of the candidate that was chosen."""
        return [self.folder.run_at(self.table, path) for path in self.final_paths]

    @property
    def final_place(self) -> str:
        """The folder of its final models."""
        return f"{self.place}/{FINAL_FOLDER}"

    @property
    def selects(self) -> bool:
        return "select" in self.config["studies"][self.name]

    @property
    def runs(self) -> list[Run]:
        """Its runs; chosen ones have the settings of the candidate that was chosen."""
        return [self.folder.run_at(self.table, path) for path in self.paths]

    @property
    def missing(self) -> list[str]:
        """Paths of failed runs, if the invocation continues without them."""
        return self.table.missing.get(self.name, [])

    @property
    def config_part(self) -> dict[str, Any]:
        """The part of the config that is needed to train the study again."""
        written = self.config | {
            "models": self.config["models"] | self.config.get(settings.WRITTEN, {})
        }
        names = filter(None, (self.config["studies"][self.name].get("against"), self.name))
        studies = {name: self._as_written(self.config["studies"][name]) for name in names}
        parts = {
            section: {
                label: written[section][label]
                for study in studies.values()
                for label in study.get(section, ())
                if label in written.get(section, {})
            }
            for section in ("datasets", "models", "schedules", "strategies")
        }
        parts |= {"studies": studies}
        usual = settings.defaults(settings.Config)
        parts |= {
            key: self.config[key]
            for key in (*usual, *grid.FOR_ALL_MODELS)
            if key not in parts and self.config.get(key, usual.get(key)) != usual.get(key)
        }
        return {key: value for key, value in parts.items() if value != {}}

    def _as_written(self, study: dict[str, Any]) -> dict[str, Any]:
        """Return the entry of a study with the swept models instead of their candidates."""
        models = dict.fromkeys(sweeps.family_of(self.config, label) for label in study["models"])
        return settings.without_defaults(study) | {"models": list(models)}

    @property
    def notes(self) -> list[str]:
        """Sentences on what may be wrong with its data or how they are split."""
        notes = list(fit.notes(self.config, self.name))
        for label, info in self.infos.items():
            notes += [f"{label}: {note}" for note in info.notes]
        return list(dict.fromkeys(notes))

    @property
    def infos(self) -> dict[str, Facts]:
        """Label -> Facts of the dataset, for those that are prepared."""
        infos = {}
        for label in self.config["studies"][self.name]["datasets"]:
            with contextlib.suppress(ValueError):  # not prepared yet
                record = storage.read_record(self.folder.dataset(label))
                infos[label] = Facts.from_json(record.content)
        return infos

    def log(self, path: str) -> str | None:
        """Return the log of a run that failed; None: it does not exist."""
        return log_of_failure(self.folder, self.table.runs[path])

    @property
    def predictions(self) -> str:
        """The file with the predictions of all runs."""
        return f"{self.place}/predictions.parquet"

    @property
    def csvs_of_other(self) -> dict[str, str]:
        """Argument of a product -> CSV of the study that this one is compared with."""
        other = self.config["studies"][self.name].get("against")
        names = ("runs", "utilisation") if other else ()
        return {f"{OTHER}{name}": self.folder.csv(other, name) for name in names}

    @property
    def tidy(self) -> dict[str, str]:
        """Name -> file of each tidy CSV."""
        return {name: self.folder.csv(self.name, name) for name in TIDY}

    @property
    def page(self) -> str:
        return f"{self.place}/report.html"

    @property
    def files(self) -> list[str]:
        """The files that it always has; its tables and figures follow from its results."""
        names = [VERDICT, MADE]
        if self.final_paths:
            folders = map(folder_of_final, self.table.of(f"{self.name}{grid.FINAL}"))
            names += [
                FINAL_MODELS,
                *(f"{FINAL_FOLDER}/{folder}/{file}" for folder in folders for file in FINAL_FILES),
            ]
        others = [f"{self.place}/{name}" for name in names]
        return [*self.tidy.values(), self.page, *self.beside_page, *others]

    @property
    def beside_page(self) -> list[str]:
        """The table that it always has, and its predictions."""
        return [self.folder.csv(self.name, "accuracy_table"), self.predictions]

    @property
    def made_of(self) -> str:
        """A digest of everything that decides the content of these files."""
        paths = [*self.paths, *self.final_paths]
        chosen = [path for path in paths if path in self.table.selections]
        read = [*map(self.folder.selection, chosen), *self.csvs_of_other.values()]
        results = self.folder.digests_of_results(paths)
        parts = [self.known, results, {file: self._digest(file) for file in read}]
        return digest(json.dumps(parts, sort_keys=True))

    @property
    def known(self) -> str:
        """A digest of the part of made_of that is known before training."""
        metric_modules = {registry.metric(metric.name).module for metric in self.facts.metrics}
        modules = (*map(products.module_of, products.sections()), *sorted(metric_modules))
        code = fingerprint.of_script("report", *modules)
        runs = [*self.table.studies.get(self.name, []), *self.final_paths]
        parts = [code, _templates(), repr(self.facts), self.missing, runs, self.config_part]
        return digest(json.dumps(parts, sort_keys=True))

    def _digest(self, file: str | Path) -> str | None:
        """Return the digest of a file; None: the file does not exist."""
        if Path(file).name == METRICS:  # of a final model
            return sha256(file) if Path(file).is_file() else None
        return self.folder.digests.of(file) if Path(file).is_file() else None

    def write_made(self, made_of: str, products: Iterable[str]) -> None:
        """Write the record of what the files were made of, with their digests.

        Files of an earlier record that are made no more are deleted.

        Args:
            made_of: self.made_of from before the metrics were loaded.
            products: the names of the files of its tables and figures.
        """
        names = {*self._names, *products}
        if (earlier := self._record()) is not None:
            for name in earlier.files.keys() - names:
                file = Path(self.place, name)
                file.unlink(missing_ok=True)
                for folder in file.relative_to(self.place).parents[:-1]:
                    with contextlib.suppress(OSError):  # not empty
                        Path(self.place, folder).rmdir()
        digests = {name: sha256(Path(self.place, name)) for name in sorted(names)}
        Record(made_of, digests, fingerprint.loaded()).write(f"{self.place}/{MADE}")

    @property
    def _names(self) -> set[str]:
        """The names of its files, without that of their record."""
        return {os.path.relpath(file, self.place) for file in self.files} - {MADE}

    def _record(self) -> Record | None:
        try:
            return Record.read(f"{self.place}/{MADE}")
        except (OSError, ValueError):
            return None

    @property
    def is_outdated(self) -> bool:
        """Whether a file is missing, has changed, or was made of something else."""
        record = self._record()
        return (
            record is None
            or not record.is_up_to_date(self.made_of)
            or not self._names <= record.files.keys()
            or record.damaged_file(self.place, self._digest) is not None
        )


def folder_of_final(run: Run) -> str:
    """Return the folder of a final run's model, relative to that of the final models."""
    return f"{run.dataset.label}/{run.model.label}/{run.schedule.label}"


def log_of_failure(folder: ResultsFolder, run: Run) -> str | None:
    """Return the log with the reason why a run has no results; None: there is none.

    It is the log of its shared job in the last invocation, of the run, or of its dataset if that
    was not prepared.
    """
    jobs = Path(folder.call_file("")).glob("*/[0-9]*.json")
    output = folder.run(run.path)
    shared = [job.with_suffix(".log") for job in jobs if _is_among(output, job)]
    logs = [
        *sorted(map(str, filter(Path.exists, shared)), reverse=True),
        folder.log("train", run.path),
    ]
    if not Path(folder.data(run)).exists():
        logs.append(folder.log("prepare_dataset", run.dataset.label))
    return next(filter(None, logs), None)


def _is_among(output: str, job: Path) -> bool:
    """Return whether the run with a folder is in a shared job, given the job's file."""
    try:
        return output in [values["output"] for values in read_json(job)["runs"]]
    except (OSError, ValueError, KeyError):  # another invocation deletes it
        return False
