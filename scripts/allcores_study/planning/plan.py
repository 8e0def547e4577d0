"""How long a campaign will take, predicted from a second of training for each workload."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from allcores.files import read_json, write_json
from allcores.machine import cores
from allcores_study import programs
from allcores_study.config.run import AUTO
from allcores_study.planning import packing, prediction
from allcores_study.planning.prediction import Measurement
from allcores_study.planning.workload import Sizes, Workload
from allcores_study.training import recipes

if TYPE_CHECKING:
    from allcores_study.config.grid import Table
    from allcores_study.config.run import Conditions, Run
    from allcores_study.planning.prediction import Prediction
    from allcores_study.records.results_folder import ResultsFolder

# Seconds from when a run's cores are free until Snakemake has started the next one on them.
GAP = 0.02


class Measurements:
    """The Measurement of each workload on this machine, kept in a file.

    Args:
        file: JSON, created by keep(); a damaged one counts as empty.
    """

    def __init__(self, file: str | Path) -> None:
        self.file = Path(file)
        try:
            content = read_json(self.file)
            self.by_key = {key: Measurement(**measurement) for key, measurement in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            self.by_key = {}

    def of(self, workload: Workload) -> Measurement | None:
        """Return the Measurement of a workload; None: it has not been measured."""
        return self.by_key.get(_key(workload))

    def known(self, workload: Workload) -> Measurement | None:
        """Return the Measurement of a workload on any machine with this processor, or None."""
        keys = _key(workload), workload.key
        return next((self.by_key[key] for key in keys if key in self.by_key), None)

    def keep(self, workload: Workload, measurement: Measurement) -> None:
        if self.of(workload) == measurement:
            return
        self.by_key[_key(workload)] = measurement
        self.file.parent.mkdir(parents=True, exist_ok=True)
        content = {key: dataclasses.asdict(measurement) for key, measurement in self.by_key.items()}
        write_json(self.file, content)


def _key(workload: Workload) -> str:
    """Return the key of a workload here; it depends on the cores if processes share them."""
    shares_cores = workload.run.cores > cores.allowed()
    return f"{workload.key}_on_{cores.allowed()}" if shares_cores else workload.key


@dataclass(frozen=True)
class Planned:
    """A run of a plan.

    Attributes:
        path: its key in the grid.Table.
        run: the Run to be trained, its recipe filled in.
        exclusive: whether it has the machine to itself.
        images: number of samples that it trains on, counted once per epoch.
        weights: bytes of its file of weights.
        prediction: its Prediction.
    """

    path: str
    run: Run
    exclusive: bool
    images: int
    weights: int
    prediction: Prediction

    def crowd(self, busy: int, available: int) -> float:
        """Return the share of the other cores that other runs keep busy meanwhile, 0..1.

        Args:
            busy: cores that all packed runs would take together; see packed_cores().
            available: number of cores.
        """
        if self.exclusive or available <= self.run.cores:
            return 0.0
        return min(1.0, (busy - self.run.cores) / (available - self.run.cores))

    def seconds(self, busy: int, available: int) -> float:
        """Return the seconds from its start to its end, slowed down by the others.

        The arguments are those of crowd().
        """
        return self.prediction.seconds_among(self.crowd(busy, available))


def packed_cores(planned: Iterable[Planned]) -> int:
    """Return how many cores Planned runs would take at once, without exclusive ones."""
    return sum(item.run.cores for item in planned if not item.exclusive)


class Planner:
    """The planner of one config's runs on one machine.

    Args:
        folder: the ResultsFolder, where measurements are kept.
        available: number of cores of the invocation.
        memory: bytes that the runs share.
        say: called with a line of text before each measurement.
    """

    def __init__(
        self,
        folder: ResultsFolder,
        available: int,
        memory: float = float("inf"),
        say: Callable[[str], object] = print,
    ) -> None:
        self.folder, self.available, self.memory, self.say = folder, available, memory, say
        self.planned: dict[tuple[str, Conditions], Planned]
        self.measurements, self.planned = Measurements(folder.plan_file("measurements.json")), {}

    def of(self, table: Table) -> list[Planned]:
        """Return the Planned runs of a grid.Table, except those that are too_wide().

        It measures what is not known yet.

        Raises:
            ValueError: a run cannot be trained, or a dataset is unknown until it is prepared.
        """
        wide = set(self.too_wide(table))
        keys = {path: (path, table.conditions[path]) for path in table.runs if path not in wide}
        new = [path for path in keys if keys[path] not in self.planned]
        runs = {path: self._with_recipe(table.runs[path], table) for path in new}
        self._measure(runs.values())
        for path, run in runs.items():
            self.planned[keys[path]] = self._planned(path, run, table)
        return [self.planned[key] for key in keys.values()]

    def too_wide(self, table: Table) -> list[str]:
        """Return the paths of runs that need more cores than are here, so cannot be measured."""
        return [
            path
            for path, run in table.runs.items()
            if not _has_room(run) and not _is_crowded(path, run, table)
        ]

    def _planned(self, path: str, run: Run, table: Table) -> Planned:
        sizes = self.sizes(run)
        measurement = self.measurements.of(Workload.of(run, sizes))
        assert measurement is not None
        return Planned(
            path,
            run,
            table.conditions[path].exclusive,
            run.trained_epochs * sizes.train,
            measurement.weights_bytes,
            measurement.prediction(run, sizes, table.conditions[path].curves),
        )

    def measure(self, table: Table) -> None:
        """Measure the workloads of the runs of a grid.Table that have not been measured yet.

        Raises:
            ValueError: one takes more cores than there are, or cannot be trained.
        """
        if wide := self.too_wide(table):
            needed = table.runs[wide[0]].cores
            raise ValueError(f"{wide[0]} takes {needed} cores; this machine has {cores.allowed()}")
        self._measure(self._with_recipe(run, table) for run in table.runs.values())

    def _measure(self, runs: Iterable[Run]) -> None:
        """Measure the workloads of runs that have not been measured yet."""
        workloads = {}
        for run in runs:
            sizes = self.sizes(run)
            workload = Workload.of(run, sizes)
            if not self.measurements.of(workload):
                workloads[workload.key] = workload, sizes
        for number, (workload, sizes) in enumerate(workloads.values(), start=1):
            self.say(f"measuring {number} of {len(workloads)}: {workload.title}")
            self.measurements.keep(workload, self._measured(workload, sizes))

    def sizes(self, run: Run) -> Sizes:
        """Return the Sizes of a run."""
        sizes = Sizes.of(run, self.folder.data(run))
        if sizes is None:
            raise ValueError(
                f"the dataset {run.dataset.label} is unknown until it is prepared; run "
                f"{programs.snakemake()} --cores 1 --until prepare_dataset, with the same config"
            )
        return sizes

    def _measured(self, workload: Workload, sizes: Sizes) -> Measurement:
        from allcores_study.planning import measuring

        try:
            copies = max(1, cores.allowed() // workload.run.cores)
            return measuring.measure(workload, sizes, copies)
        except ValueError as error:
            raise ValueError(f"{workload.title}: {error}") from None

    def _with_recipe(self, run: Run, table: Table) -> Run:
        """Return the run with its recipe filled in, measured now if it is not known."""
        if known := self.with_known_recipe(run, table):
            return known
        from allcores_study.planning import measuring

        first = table.first_of_recipe_group(run)
        self.say(f"measuring the fastest recipe for {table.family(run)}")
        cores_of_recipe, file = self._cores_of_recipe(run), self._recipe(run, table)
        measuring.calibrate(first, self.sizes(first), cores_of_recipe, file)
        return self.with_known_recipe(run, table)  # type: ignore[return-value]

    def with_known_recipe(self, run: Run, table: Table) -> Run | None:
        """Return the run with its recipe filled in, as measured by the campaign or a plan.

        None: neither has measured it.
        """
        if not run.has_auto:
            return run
        file, first = self._recipe(run, table), table.first_of_recipe_group(run)
        is_known = recipes.is_of(file, first, self._cores_of_recipe(run))
        return recipes.fill_in(run, file, self.available) if is_known else None

    def _cores_of_recipe(self, run: Run) -> int:
        return min(self.available, cores.allowed()) if run.threads_per_worker == AUTO else 1

    def _recipe(self, run: Run, table: Table) -> Path:
        return recipes.for_this_processor(self.folder.recipe_of(run, table))


def _has_room(run: Run) -> bool:
    """Return whether this machine has the cores to measure a run."""
    return run.cores <= cores.allowed() and run.nodes == 1


def _is_crowded(path: str, run: Run, table: Table) -> bool:
    """Return whether a run on one machine may have more processes than there are cores."""
    return path in table.oversubscribe and run.nodes == 1


def pack(
    planned: list[Planned], table: Table, available: int, memory: float
) -> tuple[float, float]:
    """Return packing.pack() of Planned runs, in the order in which Snakemake starts them.

    Args:
        available, memory: number of cores, and bytes.
    """
    turns, busy = table.turns(), packed_cores(planned)
    exclusive = sorted((run for run in planned if run.exclusive), key=lambda run: turns[run.path])
    others = [run for run in planned if not run.exclusive]
    others.sort(key=lambda run: -run.prediction.seconds_among(0.0))
    jobs = [
        packing.QueuedRun(
            available if item.exclusive else item.run.cores,
            prediction.claimed(item.prediction.memory, item.run.processes),
            item.seconds(busy, available),
            item.prediction.end + GAP,
        )
        for item in [*exclusive, *others]
    ]
    return packing.pack(jobs, available, memory)
