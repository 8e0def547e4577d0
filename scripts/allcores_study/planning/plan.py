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
        """The Measurement of a workload; None: it has not been measured."""
        return self.by_key.get(_key(workload))

    def known(self, workload: Workload) -> Measurement | None:
        """The Measurement of a workload by any machine with this processor; None: there is none."""
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
    """The key of a workload here: where processes share cores, it is measured separately."""
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
        """The share of the other cores that other runs keep busy meanwhile, 0..1.

        Args:
            busy: cores that all packed runs would take together; see packed_cores().
            available: number of cores.
        """
        if self.exclusive or available <= self.run.cores:
            return 0.0
        return min(1.0, (busy - self.run.cores) / (available - self.run.cores))

    def seconds(self, busy: int, available: int) -> float:
        """Seconds from its start to its end, slowed down by the others; arguments as for
        crowd()."""
        return self.prediction.seconds_among(self.crowd(busy, available))


def packed_cores(planned: Iterable[Planned]) -> int:
    """How many cores Planned runs would take at once, without those that are exclusive."""
    return sum(item.run.cores for item in planned if not item.exclusive)


class Planner:
    """Plans the runs of one config for one machine.

    Args:
        folder: the ResultsFolder, where measurements are kept.
        available: number of cores of the call.
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
        """The list of Planned for those runs of a grid.Table that can be measured here, see
        too_wide(); measures what is not known yet.

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
        """Paths of runs that take more cores than this machine has, so that nothing is known."""
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
            raise ValueError(f"{wide[0]} takes {needed} cores; here are {cores.allowed()}")
        self._measure(self._with_recipe(run, table) for run in table.runs.values())

    def _measure(self, runs: Iterable[Run]) -> None:
        """Measure workloads that are not known."""
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
        """The Sizes of a run."""
        sizes = Sizes.of(run, self.folder.data(run))
        if sizes is None:
            raise ValueError(
                f"the dataset {run.dataset.label} is unknown until it is prepared: "
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
        """The run with its recipe filled in, measured now if it is not known."""
        if known := self.with_known_recipe(run, table):
            return known
        from allcores_study.planning import measuring

        first = table.measured_for(run)
        self.say(f"measuring how {table.family(run)} computes fastest")
        cores_of_recipe, file = self._cores_of_recipe(run), self._recipe(run, table)
        measuring.calibrate(first, self.sizes(first), cores_of_recipe, file)
        return self.with_known_recipe(run, table)  # type: ignore[return-value]

    def with_known_recipe(self, run: Run, table: Table) -> Run | None:
        """The run with its recipe filled in, as measured by the campaign or a plan; None: neither
        has measured it."""
        if not run.has_auto:
            return run
        file, first = self._recipe(run, table), table.measured_for(run)
        is_known = recipes.is_of(file, first, self._cores_of_recipe(run))
        return recipes.fill_in(run, file, self.available) if is_known else None

    def _cores_of_recipe(self, run: Run) -> int:
        return min(self.available, cores.allowed()) if run.threads_per_worker == AUTO else 1

    def _recipe(self, run: Run, table: Table) -> Path:
        return recipes.for_this_processor(self.folder.recipe_of(run, table))


def _has_room(run: Run) -> bool:
    """Whether this machine has the cores to measure a run."""
    return run.cores <= cores.allowed() and run.nodes == 1


def _is_crowded(path: str, run: Run, table: Table) -> bool:
    """Whether a run may have more processes than there are cores, on the one machine it is for."""
    return path in table.oversubscribe and run.nodes == 1


def pack(
    planned: list[Planned], table: Table, available: int, memory: float
) -> tuple[float, float]:
    """What packing.pack() says of Planned runs, in the order in which Snakemake starts them.

    Args:
        planned: list of Planned.
        table: their grid.Table.
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
