"""What is there of the results of a config, what is wrong with it, and the marks that say so.

Each dataset, file of folds, recipe, run, choice and report is judged here and nowhere else: by the
record beside it, which says what it was made of and what its files were. Neither the times of files
nor Snakemake's records have a part in it. A question has no effects, and its answer holds for a
whole call.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores_study.analysis import metrics, suggestions
from allcores_study.config import grid
from allcores_study.config.run import AUTO, digest, folds_file
from allcores_study.data import folds, preparation, storage
from allcores_study.data.folds import Assignable
from allcores_study.records import fingerprint, identity, marks
from allcores_study.records.identity import Record
from allcores_study.training import recipes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from allcores_study.analysis.study import Study
    from allcores_study.config.candidates import Selection
    from allcores_study.config.grid import Table
    from allcores_study.config.run import Run
    from allcores_study.data.storage import Dataset
    from allcores_study.records.results_folder import ResultsFolder

EARLIER = "runs/ has results of an earlier version of allcores, whose records say less"
ANY_THREADS = {"threads_per_worker": None}
OF_DATASET = ("inputs.npy", "targets.npy", "dataset.json")


class Ledger:
    """Says by which mark Snakemake is asked for each part of the results, see marks.wanted().

    A mark is None where all is valid and there is none. "What is wrong" with a part is None if it
    is valid, "" if it is not there or was made of something else, and a text if it is damaged.

    Args:
        config: with its sweeps expanded.
        table: its grid.Table.
        folder: its ResultsFolder.
        most_cores: that a run may take.
        is_on_cluster: whether any of several nodes may have measured a recipe.
        tell: function of a text: is told once what is damaged.
    """

    def __init__(
        self,
        config: dict[str, Any],
        table: Table,
        folder: ResultsFolder,
        most_cores: int = 1,
        is_on_cluster: bool = False,
        tell: Callable[[str], object] = print,
    ) -> None:
        self.config, self.table, self.folder, self.tell = config, table, folder, tell
        self.most_cores, self.is_on_cluster = most_cores, is_on_cluster
        self.is_up_to_date = UpToDateCheck(folder, table)
        self.told: set[str] = set()
        self.unmarked: set[str] = set()
        self.run_of_recipe = {  # file of a recipe -> the run for which it is measured
            self.recipe_file(run): table.first_of_recipe_group(run)
            for run in table.runs.values()
            if run.has_auto
        }

    def _mark(self, stem: str, made_of: str, problem: str | None) -> str | None:
        if problem and problem not in self.told:
            self.told.add(problem)
            # Without what to do about it.
            self.tell(f"{problem.partition('. Delete')[0]}: it is made again")
        mark = marks.wanted(stem, digest(made_of), problem is None)
        if mark is None:
            self.unmarked.add(f"{stem}.{digest(made_of)}")
        return mark

    def mark_what_is_there(self) -> None:
        """Put the marks of what is valid without one: of an earlier version, say. Stored runs have
        no folder, and no mark."""
        for mark in self.unmarked:
            if Path(mark).parent.is_dir():
                marks.put(mark)

    def data(self, run: Run) -> list[str]:
        """The marks of the data of a Run."""
        label = run.dataset.label
        found = [self.dataset(label)]
        if run.folds_file:
            found.append(self.folds(label, run.folds or 0, run.seed, run.inner_folds or 0))
        return [mark for mark in found if mark]

    @functools.cache  # noqa: B019
    def dataset(self, label: str) -> str | None:
        """The mark of a dataset."""
        _, problem = self._open_dataset(label)
        stem, made_of = f"{self.folder.dataset(label)}/made", self._dataset_made_of(label)
        return self._mark(stem, made_of, problem)

    @functools.cache  # noqa: B019
    def _dataset_made_of(self, label: str) -> str:
        return preparation.made_of(grid.choice(self.config, "datasets", label))

    @functools.cache  # noqa: B019
    def _open_dataset(self, label: str) -> tuple[Dataset | None, str | None]:
        """(the storage.Dataset of a label, None) if it is valid, else (None, what is wrong)."""
        place = Path(self.folder.dataset(label))
        try:
            dataset = storage.open_dataset(place)
        except ValueError as error:
            return None, str(error) if any((place / name).exists() for name in OF_DATASET) else ""
        is_up_to_date = dataset.record.is_up_to_date(self._dataset_made_of(label))
        return (dataset, None) if is_up_to_date else (None, "")

    @functools.cache  # noqa: B019
    def folds(self, label: str, count: int, seed: int, inner: int) -> str | None:
        """The mark of a file of folds, whose numbers are as in run.folds_file()."""
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

    def recipe_file(self, run: Run) -> str:
        """The file of a Run's recipe. What another kind of processor has measured stays; on a
        cluster each node then looks for its own."""
        file = self.folder.recipe_of(run, self.table)
        return file if self.is_on_cluster else self._recipe_here(file)

    @functools.cache  # noqa: B019
    def _recipe_here(self, file: str) -> str:
        return str(recipes.for_this_processor(file))

    def cores_of_recipe(self, run: Run) -> int:
        """For how many cores it is measured how a Run computes fastest: as many as before, if that
        is enough, so that nothing is measured again."""
        if run.threads_per_worker != AUTO:
            return 1
        return max(self.most_cores, recipes.cores_measured(self.recipe_file(run)))

    def recipe(self, run: Run) -> str | None:
        """The mark of a Run's recipe; None also where it needs none."""
        return self._recipe(self.recipe_file(run)) if run.has_auto else None

    @functools.cache  # noqa: B019
    def _recipe(self, file: str) -> str | None:
        run = self.run_of_recipe[file]
        processor = recipes.processor_of(file) if self.is_on_cluster else None
        is_valid = recipes.is_of(file, run, self.cores_of_recipe(run), processor)
        stem = str(Path(file).with_suffix(""))
        return self._mark(stem, recipes.file_name(run), None if is_valid else "")

    @functools.cache  # noqa: B019
    def run(self, path: str) -> str | None:
        """The mark of a run in a folder of its own; stored runs that are valid have none."""
        return self._run(path, self.wrong_with_run(path))

    def run_to_train(self, path: str) -> str:
        """The mark of a run that is to be trained, even if it is valid."""
        return self.run(path) or self._run(path, "")  # type: ignore[return-value]

    def _run(self, path: str, problem: str | None) -> str | None:
        made_of = self.is_up_to_date.made_of(self.table.runs[path])
        return self._mark(f"{self.folder.run(path)}/made", made_of, problem)

    @functools.cache  # noqa: B019
    def wrong_with_run(self, path: str) -> str | None:
        """What is wrong with the results of the run at a path."""
        if self.is_up_to_date(path):
            return None
        if self.folder.has(path) and (damaged := self.folder.damaged_file(path)):
            is_older = self.folder.is_of_an_earlier_version(path)
            return EARLIER if is_older else f"{damaged} is not what the run wrote"
        return ""

    def are_valid(self, paths: Iterable[str]) -> bool:
        """Whether the results of the runs at these paths are there and valid."""
        return all(self.wrong_with_run(path) is None for path in paths)

    def metric(self, selection: Selection) -> str:
        """The name of the metric by which candidates are compared."""
        return metrics.of_study(self.config, selection.study)[0].name

    def choice(self, selection: Selection) -> str | None:
        """The mark of the choice of a candidates.Selection."""
        return self._choice(selection.path)

    @functools.cache  # noqa: B019
    def _choice(self, path: str) -> str | None:
        selection = self.table.choices[path]
        runs = [self.table.runs[path] for paths in selection.inner.values() for path in paths]
        # The values of candidates that are suggested follow from the choices before.
        known = selection.search or list(map(self.is_up_to_date.made_of, runs))
        made_of = repr([self.metric(selection), [run.path for run in runs], known])
        stem = self.folder.selection(path).removesuffix(".json")
        return self._mark(stem, made_of, None if self.is_valid(selection) else "")

    def is_valid(self, selection: Selection) -> bool:
        """Whether a choice and those before it are there, and would be the same now."""
        return all(self._would_be_the_same(rung.path) for rung in selection.rungs)

    @functools.cache  # noqa: B019
    def _would_be_the_same(self, path: str) -> bool:
        """Whether a choice is valid if those before it are."""
        selection, folder = self.table.choices[path], self.folder
        if not self.are_valid(self.compared(selection)) or folder.kept_labels(selection) is None:
            return False
        record = Record.read(folder.selection(path))
        return record.is_up_to_date(folder.made_of_choice(selection, self.metric(selection)))

    def compared(self, selection: Selection) -> list[str]:
        """Paths of the runs that a choice compares, once the one before it is made; they have the
        values that were suggested for them."""
        suggestions.fill_in(self.config, self.table, selection, self.folder)
        paths = self.folder.scored_paths(selection)
        assert paths is not None, "what it compares is filled in"
        return [path for paths_of_candidate in paths.values() for path in paths_of_candidate]

    def is_made(self, selection: Selection) -> bool:
        """Whether a choice is there that is valid, or was made in this call."""
        mark = self.choice(selection)
        return mark is None or Path(mark).exists()

    def report(self, study: Study, others: Iterable[str | None]) -> str | None:
        """The mark of the results of an analysis.study.Study.

        Args:
            others: marks of the results of the studies that it is compared with.
        """
        is_valid = (
            all(map(self.is_valid, study.selections))
            and self.are_valid(study.paths)
            and all(mark is None or Path(mark).exists() for mark in others)
            and not study.is_outdated
        )
        return self._mark(f"{study.place}/made", study.known, None if is_valid else "")


class UpToDateCheck:
    """Says whether the results at a path are there, intact, and what a grid.Table asks for now."""

    def __init__(self, folder: ResultsFolder, table: Table) -> None:
        self.folder, self.table = folder, table
        folder.store.read_again()
        self.data_made_of: dict[str, str] = {}  # label of a dataset -> what it is made of
        self.recipes_now: dict[tuple[Any, ...], list[dict[str, Any]]] = {}  # see recipe_differs()

    def __call__(self, path: str) -> bool:
        run, record = self.table.runs[path], self.folder.record(path)
        return (
            record is not None
            and not self.folder.damaged_file(path)
            and record.is_up_to_date(self.made_of(run))
            and self.has_what_is_asked(run, record)
            and self.recipe_differs(run, record) is None
        )

    def made_of(self, run: Run, known: dict[str, str] | None = None) -> str:
        """See identity.made_of().

        Args:
            known: what was known before its data; None: what is known now.
        """
        label = run.dataset.label
        if label not in self.data_made_of:
            self.data_made_of[label] = preparation.made_of(run.dataset)
        return identity.made_of(known or identity.before_data(run), self.data_made_of[label])

    def has_what_is_asked(self, run: Run, record: Record) -> bool:
        """Whether the identity.Record of a run's results has its Conditions."""
        return self.table.conditions[run.path].are_met_by(record.content["conditions"])

    def recipe_differs(
        self, run: Run, record: Record
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """(how a run with `auto` has computed, how it would compute now), if that is not the same,
        else None. The number of threads does not count: it depends on the cores of a call."""
        if not run.has_auto:
            return None
        file = Path(self.folder.recipe_of(run, self.table))
        processor = record.content["processor"]
        # A file that is written again has its folder changed.
        changed = file.parent.stat().st_mtime_ns if file.parent.exists() else None
        key = file, changed, processor, *run.recipe.values(), run.processes, run.nodes
        if key not in self.recipes_now:
            files = [file, *file.parent.glob(f"{file.stem}_{'[0-9a-f]' * 8}.json")]
            self.recipes_now[key] = [
                recipes.fill_in(run, file, run.cores_on_node).recipe | ANY_THREADS
                for file in files
                if recipes.processor_of(file) == processor
            ]
        now, before = self.recipes_now[key], record.content["recipe"] | ANY_THREADS
        return (before, now[0]) if now and before not in now else None
