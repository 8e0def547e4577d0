"""What a campaign will take, from what a second of training has shown of each of its cells."""

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path

from allcores.files import read_json, write_json
from allcores.machine import cores, lean_torch
from allcores.planning import packing, prediction, scaling
from allcores.planning.cells import Cell, Sizes
from allcores.planning.prediction import Sample
from allcores.study.run import AUTO
from allcores.training import recipes

# Seconds from when a run's cores are free until Snakemake has started the next one on them.
GAP = 0.02
# How often each cell is measured; once, if that takes so many seconds.
TURNS, LONG = 2, 8.0


class Samples:
    """What has been measured of cells on this machine, in a file.

    Args:
        file: JSON, made when something is kept; a damaged one is as good as none.
    """

    def __init__(self, file):
        self.file = Path(file)
        try:
            known = read_json(self.file)
            self.known = {key: Sample(**sample) for key, sample in known.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            self.known = {}

    def of(self, cell):
        """The Sample of a cell; None: nothing is known."""
        return self.known.get(_key(cell))

    def keep(self, cell, sample):
        self.known[_key(cell)] = sample
        self.file.parent.mkdir(parents=True, exist_ok=True)
        content = {key: dataclasses.asdict(sample) for key, sample in self.known.items()}
        write_json(self.file, content)


def _key(cell):
    """That of the cell; processes that had to share cores have shown something else."""
    short = cell.run.cores > cores.allowed()
    return f"{cell.key}_on_{cores.allowed()}" if short else cell.key


@dataclass(frozen=True)
class Planned:
    """A run of a plan.

    Attributes:
        path: by which the grid.Table knows it.
        run: as it is trained, its recipe filled in.
        exclusive: whether it has the machine to itself.
        images: that it trains on, each as often as there are epochs.
        weights: bytes of the weights that it leaves.
        prediction: its Prediction.
    """

    path: str
    run: object
    exclusive: bool
    images: int
    weights: int
    prediction: object


class Planner:
    """Plans runs of one config for one machine.

    Args:
        folder: the ResultsFolder, where what is measured is kept.
        available: number of cores of the call.
        memory: bytes that its runs share.
        say: called with a line before each thing that is measured.
    """

    def __init__(self, folder, available, memory=float("inf"), say=print):
        self.folder, self.available, self.memory, self.say = folder, available, memory, say
        self.samples, self.planned = Samples(folder.planned("samples.json")), {}

    def of(self, table):
        """A list of Planned, of the runs of a grid.Table; measures what is not known yet.

        Raises:
            ValueError: a cell cannot be trained, or nothing is known of a dataset yet.
        """
        keys = {path: (path, table.conditions[path]) for path in table.runs}
        new = [path for path in table.runs if keys[path] not in self.planned]
        runs = {path: self._with_recipe(table.runs[path]) for path in new}
        self._measure(runs.values(), [runs[path] for path in new if path in table.oversubscribe])
        for path, run in runs.items():
            self.planned[keys[path]] = self._planned(path, run, table)
        return [self.planned[key] for key in keys.values()]

    def _planned(self, path, run, table):
        sizes = self.sizes(run)
        crowded = path in table.oversubscribe and run.nodes == 1
        sample = self._measured_once(run) if crowded else self.sample(run)
        return Planned(
            path,
            run,
            table.conditions[path].exclusive,
            run.trained_epochs * sizes.train,
            sample.weights_bytes,
            sample.prediction(run, sizes, table.conditions[path].curves),
        )

    def sample(self, run):
        """The Sample of a run's cell, measured or extrapolated where it is not known."""
        if _has_room(run):
            return self._measured_once(run)
        lean_torch.import_torch()  # strategies are asked how their exchange grows
        return scaling.extrapolate(run, cores.allowed(), self._measured_once)

    def _measured_once(self, run):
        """The Sample of a run's cell, measured if it is not known, on however many cores."""
        sizes = self.sizes(run)
        cell = Cell.of(run, sizes)
        if not self.samples.of(cell):
            sample = self._measured(cell, sizes, f"measuring {cell.title}")
            self.samples.keep(cell, sample)
        return self.samples.of(cell)

    def measure(self, runs):
        """Measure what is not known yet of runs."""
        self._measure([self._with_recipe(run) for run in runs])

    def _measure(self, runs, crowded=()):
        """Measure what the machine has room for, all in turn and again: its speed drifts.

        Args:
            crowded: Runs that may have more processes than there are cores.
        """
        cells = {}
        for run in runs:
            sizes = self.sizes(run)
            cell = Cell.of(run, sizes)
            if (_has_room(run) or run in crowded) and not self.samples.of(cell):
                cells[cell.key] = cell, sizes
        found, lasted = {key: [] for key in cells}, {}
        for turn in range(TURNS):
            for number, (key, (cell, sizes)) in enumerate(cells.items(), 1 + turn * len(cells)):
                if lasted.get(key, 0) > LONG:
                    continue
                told, began = f"measuring {number} of {TURNS * len(cells)}", time.perf_counter()
                found[key].append(self._measured(cell, sizes, f"{told}: {cell.title}"))
                lasted[key] = time.perf_counter() - began
        for key, (cell, _) in cells.items():
            self.samples.keep(cell, prediction.average(found[key]))

    def sizes(self, run):
        """The Sizes of a run."""
        sizes = Sizes.of(run, self.folder.data(run))
        if sizes is None:
            raise ValueError(
                f"nothing is known of the dataset {run.dataset.label} before it is prepared: "
                f"snakemake --cores 1 {self.folder.data(run)}/dataset.json, with the same config"
            )
        return sizes

    def _measured(self, cell, sizes, told):
        from allcores.planning import sampling

        self.say(told)
        try:
            return sampling.measure(cell, sizes, max(1, cores.allowed() // cell.run.cores))
        except ValueError as error:
            raise ValueError(f"{cell.title}: {error}") from None

    def _with_recipe(self, run):
        """The run with its recipe filled in, measured now if it is not known."""
        known = self.recipe_known(run)
        if known:
            return known
        from allcores.planning import sampling

        self.say(f"measuring how {run.model.label} computes fastest")
        sampling.calibrate(run, self.sizes(run), self._cores_of_recipe(run), self._recipe(run))
        return self.recipe_known(run)

    def recipe_known(self, run):
        """The run with its recipe filled in, by the campaign's measurement or a plan's; or None."""
        if not run.has_auto:
            return run
        of_campaign = Path(self.folder.recipe.format(**run.wildcards, measured=run.measured))
        for file in (of_campaign, self._recipe(run)):
            if recipes.is_of(file, run, self._cores_of_recipe(run)):
                return recipes.fill_in(run, file, self.available)
        return None

    def _cores_of_recipe(self, run):
        return min(self.available, cores.allowed()) if run.threads_per_worker == AUTO else 1

    def _recipe(self, run):
        """The file of a plan's own measurement."""
        return Path(self.folder.planned("recipes")) / recipes.file_name(run)


def _has_room(run):
    """Whether this machine can show how long a run takes."""
    return run.cores <= cores.allowed() and run.nodes == 1


def pack(planned, table, available, memory):
    """The packing.Packed of Planned runs, in the order in which Snakemake starts them.

    Args:
        table: their grid.Table.
        available, memory: number of cores, and bytes.
    """
    turns = table.turns()
    first = sorted((one for one in planned if one.exclusive), key=lambda one: turns[one.path])
    others = [one for one in planned if not one.exclusive]
    others.sort(key=lambda one: -one.prediction.seconds_among(0.0))
    jobs = [
        packing.Job(
            one.path,
            available if one.exclusive else one.run.cores,
            prediction.claimed(one.prediction.memory, one.run.processes),
            one.prediction,
        )
        for one in [*first, *others]
    ]
    return packing.simulate(jobs, available, memory, GAP)
