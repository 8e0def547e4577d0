"""Estimate how long and how large runs are, to start the longest first and to size cluster jobs.

The best source counts: a finished run of the same kind; else what a plan has measured; else the
step that the smoke test has timed, corrected by how far off it was for finished runs of other
kinds. If nothing is known, it is a guess.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allcores.machine import cores
from allcores_study.planning import plan, preflight
from allcores_study.planning.prediction import FORKED_MB, claimed
from allcores_study.planning.workload import Sizes, Workload
from allcores_study.records import run_files

if TYPE_CHECKING:
    from allcores_study.config.grid import Table
    from allcores_study.config.run import Run
    from allcores_study.records.results_folder import ResultsFolder

START_UP, FORKED_START_UP = 3.0, 0.5  # seconds
LEAST_WORK = 0.02  # seconds: loading, scoring and writing of the smallest run
SCALING = 0.7  # n cores are worth n ** SCALING
# For a model or a dataset about which nothing is known.
UNKNOWN = {"seconds": 0.1, "activation_bytes": 4e6, "weight_bytes": 4e7}
UNKNOWN_IMAGES = 10_000

# For the process of a run that imports torch itself; its ranks are forked from it.
TORCH_MB = 400
# Memory of a worker in multiples of the model: weights, gradients, two averages, messages.
COPIES = 6
# Gradients and buffers come on top of the activations kept for the backward pass.
ACTIVATION_FACTOR = 1.5
# If these settings are equal, a finished run shows how long another one takes.
COMPARED = ("dataset", "model", "optimizer", "batch_size", "epochs", "precision", "memory_format")
# Whether runs of that kind were measured -> (time limit in multiples of the expected time, its
# least minutes).
LIMITS = {True: (2.5, 5), False: (3.0, 30)}


class Estimates:
    """Expected durations and sizes of the runs of one config.

    Args:
        available: number of cores that a run can have.
        forked: whether the runs are forked from a process with which they share memory.
    """

    def __init__(self, table: Table, folder: ResultsFolder, available: int, forked: bool) -> None:
        self.table, self.folder = table, folder
        self.available, self.forked = available, forked
        self.paths_of_kind: defaultdict[tuple[Any, ...], list[str]] = defaultdict(list)
        for path, run in table.runs.items():
            self.paths_of_kind[_kind(run)].append(path)
        self.largest = functools.cache(self._largest)
        self.read_again()

    def read_again(self) -> None:
        """Read everything again after something has been measured."""
        self.folder.store.read_again()
        self.counts = preflight.counts(self.folder.tried_out)
        self.planner = plan.Planner(self.folder, self.available)
        self.expected = functools.cache(self._expected)
        self.from_run = functools.cache(self._from_run)
        self.ratios = functools.cache(self._ratios)
        self.largest = functools.cache(self._largest)

    def seconds(self, run: Run) -> float:
        """Return the expected duration of a Run in seconds."""
        return self.expected(self._kind(run)).seconds

    def work(self, run: Run) -> float:
        """Return the seconds that a Run takes in a shared job, without starting a process."""
        start_up = FORKED_START_UP if self.forked else START_UP
        return max(LEAST_WORK, self.seconds(run) - start_up)

    def minutes(self, runs: Iterable[Run]) -> int:
        """Return a generous time limit for Runs in sequence: a cluster ends what exceeds it."""
        expected = [self.expected(self._kind(run)) for run in runs]
        factor, least = LIMITS[all(one.measured for one in expected)]
        return max(least, math.ceil(factor * math.fsum(one.seconds for one in expected) / 60))

    def memory_mb(self, run: Run) -> int:
        """Return the expected peak memory of a Run on each of its nodes in megabytes.

        It is generous, because a cluster kills what exceeds it.
        """
        expected = self.expected(self._kind(run))
        processes = -(-run.processes // run.nodes)  # on a node
        torch_mb = 0 if self.forked else TORCH_MB
        of_node = expected.bytes / run.nodes
        if expected.measured:
            return torch_mb + round(claimed(of_node, processes) / 1e6)
        return torch_mb + round(FORKED_MB * (1 + processes) + of_node / 1e6)

    def _kind(self, run: Run) -> tuple[Any, ...]:
        """Return _kind(), after adding that of a candidate that was suggested meanwhile."""
        kind = _kind(run)
        if kind not in self.paths_of_kind:
            self.paths_of_kind[kind] = [run.path]
        return kind

    def _expected(self, kind: tuple[Any, ...]) -> Expected:
        run = self.table.runs[self.paths_of_kind[kind][0]]
        if expected := self.from_run(kind) or self._from_plan(run):
            return expected
        counted = self._from_counts(run)
        ratios_of, label = self.ratios(), run.model.label
        all_ratios = [ratio for ratios in ratios_of.values() for ratio in ratios]
        correction = statistics.median(ratios_of.get(label) or all_ratios or [1.0])
        return dataclasses.replace(counted, seconds=correction * counted.seconds)

    def _ratios(self) -> dict[str, list[float]]:
        """Return label of a model -> measured over counted seconds of each finished kind of run."""
        ratios_of = defaultdict(list)
        for kind, paths in list(self.paths_of_kind.items()):
            if finished := self.from_run(kind):
                run = self.table.runs[paths[0]]
                ratios_of[run.model.label].append(finished.seconds / self._from_counts(run).seconds)
        return ratios_of

    def _from_counts(self, run: Run) -> Expected:
        """Estimate seconds and bytes by a step of its model, without those of torch."""
        trial = preflight.trial(run)
        known = self.counts.get(trial[0]) if trial else None
        counts = UNKNOWN | (known or self.largest(self.table.family(run)))
        sizes = Sizes.of(run, self.folder.data(run))
        train = sizes.train if sizes else run.train_size or UNKNOWN_IMAGES
        work = train * run.trained_epochs * counts["seconds"]
        activations = ACTIVATION_FACTOR * counts["activation_bytes"] * (run.batch_size or 0)
        copies = COPIES * counts["weight_bytes"] * run.processes
        start_up = FORKED_START_UP if self.forked else START_UP
        seconds = start_up + work / run.cores**SCALING
        return Expected(seconds, activations + copies, measured=False)

    def _largest(self, family: str) -> dict[str, float]:
        """Return the most that a sample of any candidate of a sweep takes, for suggested ones."""
        # Copied to a list: a search adds runs in another thread.
        runs: dict[str, Run] | list[Run]
        runs = {run.model.label: run for run in list(self.table.runs.values())}
        runs = [run for run in runs.values() if self.table.family(run) == family]
        trials = [trial for run in runs if (trial := preflight.trial(run))]
        # A step that could not be counted, such as a compiled model's, has none.
        known = [counts for key, _ in trials if (counts := self.counts.get(key))]
        return {key: max(counts[key] for counts in known) for key in (known[0] if known else ())}

    def _from_plan(self, run: Run) -> Expected | None:
        """Estimate by what a plan has measured; None: it has not."""
        if not self.planner.measurements.by_key:
            return None
        run_with_recipe = self.planner.with_known_recipe(run, self.table)
        sizes = run_with_recipe and Sizes.of(run_with_recipe, self.folder.data(run_with_recipe))
        measurement = sizes and self.planner.measurements.known(Workload.of(run_with_recipe, sizes))  # type: ignore[arg-type]
        if not measurement:
            return None
        assert run_with_recipe is not None and isinstance(sizes, Sizes)
        conditions = self.table.conditions[run.path]
        predicted = measurement.prediction(run_with_recipe, sizes, conditions.curves)
        seconds = predicted.seconds_among(0.0 if conditions.exclusive else 1.0)
        return Expected(seconds, predicted.memory, measured=True)

    def _from_run(self, kind: tuple[Any, ...]) -> Expected | None:
        """Estimate by a finished run of that kind, on a processor like this one; None: none."""
        for path in self.paths_of_kind[kind]:
            if not self.folder.has(path):
                continue
            try:
                metrics = run_files.metrics(self.folder.run_files(path))
            except (OSError, ValueError):  # reported when it is collected
                continue
            settings = json.loads(self.table.runs[path].to_json())
            same = all(metrics["settings"].get(key) == settings[key] for key in COMPARED)
            here = metrics["machine"]["processor"] == cores.processor()
            if same and here and not metrics["diverged"]:
                seconds = sum(part["ended"] - part["started"] for part in metrics["sessions"])
                return Expected(seconds, metrics["peak_memory_bytes"], measured=True)
        return None


@dataclass(frozen=True)
class Expected:
    """Expected duration and memory of a run.

    Attributes:
        seconds: from its start to its end.
        bytes: peak memory.
        measured: whether runs were measured, whole or by a plan; `bytes` then covers all of a run.
    """

    seconds: float
    bytes: float
    measured: bool


def _kind(run: Run) -> tuple[Any, ...]:
    """Return a key that is equal for runs that differ only in schedule, fold and seed."""
    wildcards = run.wildcards
    return (
        *(wildcards[key] for key in ("dataset", "model", "strategy", "layout", "size")),
        *(run.folds, run.inner_folds, run.stop_after),
        # A suggested candidate has different ones in each fold.
        *(run.batch_size, repr(run.model.options)),
    )
