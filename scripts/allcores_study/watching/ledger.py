"""What exists of a config's results, what is wrong there, and the marks that show it.

Each dataset, file of folds, run, choice and report is judged here and nowhere else. The judgement
rests on the record beside it, which contains what it was made of and the digests of its files. The
times of files only save computing a digest again, and Snakemake's records are not used. A question
changes no result. It prints what is damaged, once. Its answer holds for a whole invocation.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores_study.config import grid
from allcores_study.config.run import digest, folds_file
from allcores_study.data import folds, preparation, storage
from allcores_study.data.folds import Assignable
from allcores_study.records import fingerprint, identity, marks
from allcores_study.records.identity import Record
from allcores_study.training import choosing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allcores_study.analysis.study import Study
    from allcores_study.config.candidates import Selection
    from allcores_study.config.grid import Table
    from allcores_study.config.run import Run
    from allcores_study.data.storage import Dataset
    from allcores_study.records.results_folder import ResultsFolder

OF_DATASET = ("inputs.npy", "targets.npy", "dataset.json")


class Ledger:
    """Decides by which mark Snakemake is asked for each part of the results; see marks.wanted().

    A mark is None if the part is valid and has none. "What is wrong" with a part is None if it is
    valid, "" if it does not exist or was made of something else, and a text if it is damaged.

    Args:
        config: with its sweeps expanded.
        table: the runs of the config.
        folder: where the results are.
        tell: called with a text, once for each damaged part.
    """

    def __init__(
        self,
        config: dict[str, Any],
        table: Table,
        folder: ResultsFolder,
        tell: Callable[[str], object] = print,
    ) -> None:
        self.config, self.table, self.folder, self.tell = config, table, folder, tell
        self.check = UpToDateCheck(folder, table)
        self.told: set[str] = set()

    def _mark(self, stem: str, made_of: str, problem: str | None) -> str | None:
        if problem and problem not in self.told:
            self.told.add(problem)
            self.tell(f"{problem}; rebuilding it")
        return marks.wanted(stem, digest(made_of), problem is None)

    def data(self, run: Run) -> list[str]:
        """Return the marks of a run's data."""
        label = run.dataset.label
        found = [self.dataset(label)]
        if run.folds_file:
            found.append(self.folds(label, run.folds or 0, run.seed, run.inner_folds or 0))
        return [mark for mark in found if mark]

    @functools.cache  # noqa: B019
    def dataset(self, label: str) -> str | None:
        """Return the mark of a dataset."""
        _, problem = self._open_dataset(label)
        stem, made_of = f"{self.folder.dataset(label)}/made", self._dataset_made_of(label)
        return self._mark(stem, made_of, problem)

    @functools.cache  # noqa: B019
    def _dataset_made_of(self, label: str) -> str:
        return preparation.made_of(grid.labelled(self.config, "datasets", label))

    @functools.cache  # noqa: B019
    def _open_dataset(self, label: str) -> tuple[Dataset | None, str | None]:
        """Return (the dataset of a label, None) if it is valid, else (None, what is wrong)."""
        place = Path(self.folder.dataset(label))
        try:
            dataset = storage.open_dataset(place)
        except ValueError as error:
            return None, str(error) if any((place / name).exists() for name in OF_DATASET) else ""
        is_up_to_date = dataset.record.is_up_to_date(self._dataset_made_of(label))
        return (dataset, None) if is_up_to_date else (None, "")

    @functools.cache  # noqa: B019
    def folds(self, label: str, count: int, seed: int, inner: int) -> str | None:
        """Return the mark of a file of folds; the numbers are as in run.folds_file()."""
        file = Path(self.folder.dataset(label), folds_file(count, seed, inner))
        made_of = f"{self._dataset_made_of(label)} {fingerprint.of_folds()}"
        problem = self._wrong_with_folds(file, label, count, seed, inner)
        return self._mark(str(file.with_suffix("")), made_of, problem)

    def _wrong_with_folds(
        self, file: Path, label: str, count: int, seed: int, inner: int
    ) -> str | None:
        dataset, _ = self._open_dataset(label)
        if dataset is None:
            return ""
        try:
            folds.read(file, Assignable.of(dataset), count, inner, seed)
        except ValueError as error:
            return str(error)
        except OSError:  # not assigned yet
            return ""
        return None

    @functools.cache  # noqa: B019
    def is_valid(self, path: str) -> bool:
        """Return whether the results of the run at a path exist and are up to date."""
        return self.check(path)

    @functools.cache  # noqa: B019
    def run(self, path: str) -> str | None:
        """Return the mark of a run; None: it is valid, and was trained in a shared job."""
        return self._run(path, self._wrong_with_run(path))

    def run_to_train(self, path: str) -> str:
        """Return the mark of a run that will be trained, even if it is valid."""
        return self.run(path) or self._run(path, "")  # type: ignore[return-value]

    def _run(self, path: str, problem: str | None) -> str | None:
        return self._mark(f"{self.folder.run(path)}/made", self._run_made_of(path), problem)

    def _run_made_of(self, path: str) -> str:
        """Return what a run is made of; for a chosen one, all that may be, and how it is chosen."""
        made_of, selection = self.check.made_of, self.table.selections.get(path)
        if selection is None:
            return made_of(self.table.runs[path])
        compared = [made_of(self.table.runs[inner]) for inner in selection.compared]
        outer = [made_of(run) for run in selection.outer.values()]
        return repr([selection.metrics[0], fingerprint.of_choice(), compared, outer])

    def _wrong_with_run(self, path: str) -> str | None:
        if self.is_valid(path):
            return None
        if self.folder.has(path) and (damaged := self.folder.damaged_file(path)):
            return f"{damaged} is not what the run wrote"
        if path in self.table.selections:
            try:
                Record.read(self.folder.selection(path))
            except ValueError as error:
                return str(error)
            except OSError:  # not chosen yet
                pass
        return ""

    def report(self, study: Study, others: Iterable[str | None]) -> str | None:
        """Return the mark of a study's results.

        Args:
            others: marks of the results of the studies that it is compared with.
        """
        is_valid = (
            all(map(self.is_valid, [*study.paths, *study.final_paths]))
            and all(mark is None or Path(mark).exists() for mark in others)
            and not study.is_outdated
        )
        return self._mark(f"{study.place}/made", study.known, None if is_valid else "")


class UpToDateCheck:
    """A check that the results at a path exist, are intact and are what a table asks for now."""

    def __init__(self, folder: ResultsFolder, table: Table) -> None:
        self.folder, self.table = folder, table
        self.data_made_of: dict[str, str] = {}  # label of a dataset -> what it is made of

    def __call__(self, path: str) -> bool:
        record = self.folder.record(path)
        if record is None or self.folder.damaged_file(path):
            return False
        selection = self.table.selections.get(path)
        if selection and not self.is_choice_up_to_date(selection):
            return False
        run = self.folder.run_at(self.table, path)
        return record.is_up_to_date(self.made_of(run)) and self.has_what_is_asked(path, record)

    def table_of_these(self) -> Table:
        """Return the table without the runs that lack such results."""
        return self.table.without({path for path in self.table.runs if not self(path)})

    def is_choice_up_to_date(self, selection: Selection) -> bool:
        """Return whether a choice was made by the results that its inner runs have now."""
        try:
            record = Record.read(self.folder.selection(selection.path))
        except (OSError, ValueError):
            return False
        return (
            all(map(self, selection.compared))
            and record.content.get("chosen") in selection.outer
            and record.is_up_to_date(
                choosing.made_of(selection, self.folder.digests_of_results(selection.compared))
            )
        )

    def made_of(self, run: Run, known: dict[str, str] | None = None) -> str:
        """Return what a run is made of; see identity.made_of().

        Args:
            known: what was known before its data; None for what is known now.
        """
        label = run.dataset.label
        if label not in self.data_made_of:
            self.data_made_of[label] = preparation.made_of(run.dataset)
        return identity.made_of(known or identity.before_data(run), self.data_made_of[label])

    def has_what_is_asked(self, path: str, record: Record) -> bool:
        """Return whether results meet the conditions of a run and have the scores to choose by."""
        selections = self.table.selections_of_inner.get(path, ())
        scored_by = record.content["scored_by"]
        return self.table.conditions[path].are_met_by(record.content["conditions"]) and all(
            scored_by.get(one.metrics[0]) == fingerprint.of_metric(one.metrics[0])
            for one in selections
        )
