"""How long and how large a run will be: to start the longest first, and to ask a cluster for it.

What is known best counts: what a run of the same kind has taken; what a plan has measured; what was
measured for the model's recipe, or its multiply-adds, and how far that was off for runs of other
kinds. Where nothing is known, it is a guess.
"""

import dataclasses
import functools
import json
import statistics
from collections import defaultdict
from dataclasses import dataclass

from allcores.files import read_json
from allcores.machine import cores
from allcores.planning import plan, preflight
from allcores.planning.cells import Cell, Sizes
from allcores.planning.prediction import FORKED_MB, claimed
from allcores.training import recipes

START_UP, FORKED_START_UP = 3.0, 0.5  # seconds
RATE = 8e9  # multiply-adds per second and core
PASSES = 3  # forward, and two for backward
SCALING = 0.7  # n cores are worth n ** SCALING
# For a model or a dataset of which nothing is known.
UNKNOWN = {"multiply_adds": 1e8, "activation_bytes": 4e6, "weight_bytes": 4e7}
UNKNOWN_IMAGES = 10_000

# Torch, in a process of its own.
PROCESS_MB = 400
# Of a worker, in sizes of the model: weights, gradients, an optimizer's two averages, what is sent.
COPIES = 6
# What is kept for the backward pass is not all: gradients and buffers come on top.
BESIDE_ACTIVATIONS = 1.5
# The settings by which a run that was made tells of one to be made.
ALIKE = ("dataset", "model", "optimizer", "batch_size", "epochs", "precision", "memory_format")
# A time limit is so many times what is expected: what was counted may be far off.
MEASURED_LIMIT, COUNTED_LIMIT, LEAST_LIMIT = 3, 10, 30  # the last in minutes


class Estimates:
    """What is expected of the runs of one config.

    Args:
        table: their grid.Table.
        folder: the ResultsFolder.
        available: number of cores that a run can have.
        forked: whether the runs are forked from a process that they share memory with.
    """

    def __init__(self, table, folder, available, forked):
        self.table, self.folder = table, folder
        self.available, self.forked = available, forked
        self.alike = defaultdict(list)
        for path, run in table.runs.items():
            self.alike[_kind(run)].append(path)
        self.read_again()

    def read_again(self):
        """Forget what was known: something has been measured or counted since."""
        self.counts = preflight.counts(self.folder.tried_out)
        self.planner = plan.Planner(self.folder, self.available)
        self.of_kind = functools.cache(self._of_kind)
        self.taken = functools.cache(self._taken)
        self.off = functools.cache(self._off)

    def seconds(self, run):
        """Expected duration of a Run in seconds."""
        return self.of_kind(_kind(run)).seconds

    def minutes(self, run):
        """A time limit for a Run, generous: a cluster ends what exceeds it."""
        expected = self.of_kind(_kind(run))
        factor = MEASURED_LIMIT if expected.measured else COUNTED_LIMIT
        return max(LEAST_LIMIT, round(factor * expected.seconds / 60))

    def memory_mb(self, run):
        """Expected peak memory of a Run on each of its nodes in megabytes, generous: a cluster
        kills what exceeds it."""
        expected = self.of_kind(_kind(run))
        on_node, each = -(-run.processes // run.nodes), FORKED_MB if self.forked else PROCESS_MB
        taken = expected.bytes / run.nodes
        if expected.measured:
            return round(claimed(taken, on_node, each) / 1e6)
        return round(each * (1 + on_node) + taken / 1e6)

    def _of_kind(self, kind):
        run = self.table.runs[self.alike[kind][0]]
        if known := self.taken(kind) or self._planned(run):
            return known
        counted = self._counted(run)
        return dataclasses.replace(counted, seconds=counted.seconds * self.off(run.model.label))

    def _off(self, model):
        """How many times as long as counted runs of a model take; of any, if none was made yet."""
        found = defaultdict(list)
        for kind, paths in self.alike.items():
            if taken := self.taken(kind):
                run = self.table.runs[paths[0]]
                found[run.model.label].append(taken.seconds / self._counted(run).seconds)
        of_any = [ratio for ratios in found.values() for ratio in ratios]
        return statistics.median(found.get(model) or of_any or [1.0])

    def _counted(self, run):
        """By the pace of its recipe, or else what the model computes; by what it keeps, memory
        without that of torch."""
        trial = preflight.trial(run)
        counts = UNKNOWN | (self.counts.get(trial[0], {}) if trial else {})
        sizes = Sizes.of(run, self.folder.data(run))
        train = sizes.train if sizes else run.train_size or UNKNOWN_IMAGES
        images = train * run.trained_epochs
        recipe = self.folder.recipe.format(**run.wildcards, measured=run.measured)
        pace = run.has_auto and recipes.pace(recipe)
        work = images / pace if pace else images * PASSES * counts["multiply_adds"] / RATE
        activations = BESIDE_ACTIVATIONS * counts["activation_bytes"] * run.batch_size
        copies = COPIES * counts["weight_bytes"] * run.processes
        start_up = FORKED_START_UP if self.forked else START_UP
        seconds = start_up + work / run.cores**SCALING
        return Expected(seconds, activations + copies, measured=False)

    def _planned(self, run):
        """By a plan's samples; None: it has none."""
        if not self.planner.samples.known:
            return None
        known = self.planner.recipe_known(run)
        sizes = known and Sizes.of(known, self.folder.data(known))
        sample = sizes and self.planner.samples.of(Cell.of(known, sizes))
        if not sample:
            return None
        predicted = sample.prediction(known, sizes, self.table.conditions[run.path].curves)
        return Expected(predicted.seconds_among(1.0), predicted.memory, measured=True)

    def _taken(self, kind):
        """By what a run of that kind has taken, on a processor like this one; None: none has."""
        for path in self.alike[kind]:
            if not self.folder.has(path):
                continue
            try:
                metrics = read_json(f"{self.folder.run(path)}/metrics.json")
            except (OSError, ValueError):  # whoever collects it says so
                continue
            wanted = json.loads(self.table.runs[path].to_json())
            same = all(metrics["settings"].get(key) == wanted[key] for key in ALIKE)
            here = metrics["machine"]["processor"] == cores.processor()
            if same and here and not metrics["diverged"]:
                lasted = sum(one["ended"] - one["started"] for one in metrics["sessions"])
                return Expected(lasted, metrics["peak_memory_bytes"], measured=True)
        return None


@dataclass(frozen=True)
class Expected:
    """What is expected of a run.

    Attributes:
        seconds: from its start to its end.
        bytes: of memory, at most.
        measured: whether that was measured, and not counted or guessed.
    """

    seconds: float
    bytes: float
    measured: bool


def _kind(run):
    """Equal for runs that differ only in schedule, fold and seed."""
    of_path = run.wildcards
    return (
        *(of_path[key] for key in ("dataset", "model", "strategy", "layout", "size")),
        *(run.folds, run.inner_folds, run.stop_after),
    )
