"""What exists of a config's results, what is wrong there, and the marks that show it.

Each dataset, file of folds, recipe, run, choice and report is judged here and nowhere else. The
judgement rests on the record beside it, which contains what it was made of and the digests of its
files. The times of files only save computing a digest again, and Snakemake's records are not used.
A question changes no result. It prints what is damaged, once, and notes for mark_what_is_there()
which marks are missing. Its answer holds for a whole invocation.
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

EARLIER = "runs/ has results of an earlier version of allcores, whose records contain less"
ANY_THREADS = {"threads_per_worker": None}
OF_DATASET = ("inputs.npy", "targets.npy", "dataset.json")


class Ledger:
    """Decides by which mark Snakemake is asked for each part of the results; see marks.wanted().

    A mark is None if the part is valid and has none. "What is wrong" with a part is None if it is
    valid, "" if it does not exist or was made of something else, and a text if it is damaged.

    Args:
        config: with its sweeps expanded.
        table: the runs of the config.
        folder: where the results are.
        most_cores: the most cores that a run may take.
        is_on_cluster: whether any of several nodes may have measured a recipe.
        tell: called with a text, once for each damaged part.
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
            # Without the advice to delete it.
            self.tell(f"{problem.partition('. Delete')[0]}; rebuilding it")
        mark = marks.wanted(stem, digest(made_of), problem is None)
        if mark is None:
            self.unmarked.add(f"{stem}.{digest(made_of)}")
        return mark

    def mark_what_is_there(self) -> None:
        """Add marks to valid parts that have none, such as those of an earlier version.

        Stored runs have no folder, and no mark.
        """
        for mark in self.unmarked:
            if Path(mark).parent.is_dir():
                marks.put(mark)

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
        return preparation.made_of(grid.choice(self.config, "datasets", label))

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

    def recipe_file(self, run: Run) -> str:
        """Return the file of a run's recipe.

        Recipes that another kind of processor measured are kept. On a cluster, each node looks for
        its own.
        """
        file = self.folder.recipe_of(run, self.table)
        return file if self.is_on_cluster else self._recipe_here(file)

    @functools.cache  # noqa: B019
    def _recipe_here(self, file: str) -> str:
        return str(recipes.for_this_processor(file))

    def cores_of_recipe(self, run: Run) -> int:
        """Return for how many cores a run's recipe is measured.

        It is the number from before, if that is enough, so that nothing is measured again.
        """
        if run.threads_per_worker != AUTO:
            return 1
        return max(self.most_cores, recipes.cores_measured(self.recipe_file(run)))

    def recipe(self, run: Run) -> str | None:
        """Return the mark of a run's recipe; None also if the run needs none."""
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
        """Return the mark of a run in a folder of its own; valid stored runs have none."""
        return self._run(path, self.wrong_with_run(path))

    def run_to_train(self, path: str) -> str:
        """Return the mark of a run that will be trained, even if it is valid."""
        return self.run(path) or self._run(path, "")  # type: ignore[return-value]

    def _run(self, path: str, problem: str | None) -> str | None:
        made_of = self.is_up_to_date.made_of(self.table.runs[path])
        return self._mark(f"{self.folder.run(path)}/made", made_of, problem)

    @functools.cache  # noqa: B019
    def wrong_with_run(self, path: str) -> str | None:
        """Return what is wrong with the results of the run at a path."""
        if self.is_up_to_date(path):
            return None
        if self.folder.has(path) and (damaged := self.folder.damaged_file(path)):
            is_older = self.folder.is_of_an_earlier_version(path)
            return EARLIER if is_older else f"{damaged} is not what the run wrote"
        return ""

    def are_valid(self, paths: Iterable[str]) -> bool:
        """Return whether the results of the runs at these paths exist and are valid."""
        return all(self.wrong_with_run(path) is None for path in paths)

    def metric(self, selection: Selection) -> str:
        """Return the name of the metric by which candidates are compared."""
        return metrics.of_study(self.config, selection.study.removesuffix(grid.FINAL))[0].name

    def choice(self, selection: Selection) -> str | None:
        """Return the mark of a choice between candidates."""
        return self._choice(selection.path)

    @functools.cache  # noqa: B019
    def _choice(self, path: str) -> str | None:
        selection = self.table.choices[path]
        runs = [self.table.runs[path] for paths in selection.inner.values() for path in paths]
        # The suggested values of a search's candidates follow from the choices before.
        known = selection.search or list(map(self.is_up_to_date.made_of, runs))
        made_of = repr([self.metric(selection), [run.path for run in runs], known])
        stem = self.folder.selection(path).removesuffix(".json")
        return self._mark(stem, made_of, None if self.is_valid(selection) else "")

    def is_valid(self, selection: Selection) -> bool:
        """Return whether a choice and those before it exist, and would be the same now."""
        return all(self._would_be_the_same(rung.path) for rung in selection.rungs)

    @functools.cache  # noqa: B019
    def _would_be_the_same(self, path: str) -> bool:
        """Return whether a choice is valid, provided that those before it are."""
        selection, folder = self.table.choices[path], self.folder
        if not self.are_valid(self.compared(selection)) or folder.kept_labels(selection) is None:
            return False
        record = Record.read(folder.selection(path))
        return record.is_up_to_date(folder.made_of_choice(selection, self.metric(selection)))

    def compared(self, selection: Selection) -> list[str]:
        """Return the paths of the runs that a choice compares, with their suggested values.

        The choice before it has to be made.
        """
        suggestions.fill_in(self.config, self.table, selection, self.folder)
        paths = self.folder.scored_paths(selection)
        assert paths is not None, "what it compares is filled in"
        return [path for paths_of_candidate in paths.values() for path in paths_of_candidate]

    def is_made(self, selection: Selection) -> bool:
        """Return whether a choice is valid, or was made in this invocation."""
        mark = self.choice(selection)
        return mark is None or Path(mark).exists()

    def report(self, study: Study, others: Iterable[str | None]) -> str | None:
        """Return the mark of a study's results.

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
    """A check that the results at a path exist, are intact and are what a table asks for now."""

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
        """Return what a run is made of; see identity.made_of().

        Args:
            known: what was known before its data; None for what is known now.
        """
        label = run.dataset.label
        if label not in self.data_made_of:
            self.data_made_of[label] = preparation.made_of(run.dataset)
        return identity.made_of(known or identity.before_data(run), self.data_made_of[label])

    def has_what_is_asked(self, run: Run, record: Record) -> bool:
        """Return whether the results that a record belongs to meet the conditions of a run."""
        return self.table.conditions[run.path].are_met_by(record.content["conditions"])

    def recipe_differs(
        self, run: Run, record: Record
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return (how a run with `auto` computed, how it would now), or None if that is the same.

        The number of threads does not count: it depends on the cores of an invocation.
        """
        if not run.has_auto:
            return None
        file = Path(self.folder.recipe_of(run, self.table))
        processor = record.content["processor"]
        # Rewriting a file changes the time of its folder.
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
