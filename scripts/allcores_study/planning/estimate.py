"""Estimate how long and how large runs are: for plans, shared jobs, time limits and time left.

There is one source for each kind of run: a finished run of that kind, else the step that the smoke
test has timed, else constants.
"""

from __future__ import annotations

import functools
import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allcores_study.planning import preflight
from allcores_study.planning.sizes import Sizes
from allcores_study.records import run_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allcores_study.config.grid import Table
    from allcores_study.config.run import Run
    from allcores_study.records.results_folder import ResultsFolder

START_UP, FORKED_START_UP = 3.0, 0.5  # seconds
LEAST_WORK = 0.02  # seconds: loading, scoring and writing of the smallest run
# Seconds of a step besides forward and backward pass: loading, update, bookkeeping.
STEP = 3e-4
STACK_GAIN = 5.0  # how many times faster a small network trains in a stack than alone
SCALING = 0.7  # n cores are worth n ** SCALING
SCORING = 0.3  # of the time of a training step that scoring a sample takes
# For a model or a dataset about which nothing is known.
UNKNOWN = {"seconds": 0.1, "activation_bytes": 4e6, "weight_bytes": 4e7}
UNKNOWN_SIZES = Sizes(train=10_000, held_out=1_000)

# Megabytes of a process that imports torch, and of one that is forked from it.
TORCH_MB, FORKED_MB = 440, 80
# Memory of a worker in multiples of the model: weights, gradients, two averages, messages.
COPIES = 6
# Gradients and buffers come on top of the activations kept for the backward pass.
ACTIVATION_FACTOR = 1.5
# Requested over measured memory: a run may take a little more than the one that was measured.
MEMORY_MARGIN = 1.25
# If these settings are equal, a finished run shows how long another one takes.
COMPARED = ("dataset", "model", "optimizer", "batch_size", "epochs", "precision", "memory_format")
# Whether runs of that kind have finished -> (time limit in multiples of the expected time, its
# least minutes).
LIMITS = {True: (2.5, 5), False: (3.0, 30)}


@dataclass(frozen=True)
class Expected:
    """Expected duration and memory of a run.

    Attributes:
        seconds: from its start to its end.
        bytes: peak memory.
        is_measured: whether a run of this kind has finished; `bytes` then covers all of a run.
    """

    seconds: float
    bytes: float
    is_measured: bool


class Estimates:
    """Expected durations and sizes of the runs of one config, by what is known when it is made.

    Args:
        is_forked: whether the runs are forked from a process with which they share memory.
        cores: number of cores of a node; None: unknown.
    """

    def __init__(
        self, table: Table, folder: ResultsFolder, is_forked: bool, cores: int | None = None
    ) -> None:
        self.table, self.folder, self.is_forked = table, folder, is_forked
        self.cores = cores or math.inf
        self.start_up = FORKED_START_UP if is_forked else START_UP
        self.tried_out = preflight.counts(folder.tried_out)
        self.of_kind: dict[tuple[Any, ...], Expected] = {}
        self.known_sizes: dict[tuple[Any, ...], Sizes | None] = {}

    @functools.cached_property
    def paths_of_kind(self) -> dict[tuple[Any, ...], list[str]]:
        paths = defaultdict(list)
        for path, run in self.table.runs.items():
            paths[_kind(run)].append(path)
        return paths

    def run_at(self, path: str) -> Run:
        """Return the Run at a path; for a chosen one, the candidate with the most work."""
        selection = self.table.selections.get(path)
        return max(selection.outer.values(), key=self.work) if selection else self.table.runs[path]

    def expected(self, run: Run) -> Expected:
        """Return what is expected of a Run."""
        # A chosen run has the label of its sweep, whatever is chosen; in time, later folds are
        # larger.
        key = (*_kind(run), run.epochs, run.precision, repr(run.optimizer), self._sizes(run))
        if key not in self.of_kind:
            self.of_kind[key] = self._of_finished(run) or self._of_smoke_test(run)
        return self.of_kind[key]

    def seconds(self, run: Run) -> float:
        """Return the expected duration of a Run in seconds."""
        return self.expected(run).seconds

    def work(self, run: Run) -> float:
        """Return the seconds that a Run takes in a shared job, without starting a process."""
        expected = self.expected(run)
        # Finished short runs have shared a job, and their times begin in it.
        start_up = 0.0 if expected.is_measured else self.start_up
        return max(LEAST_WORK, expected.seconds - start_up)

    def minutes(self, runs: Iterable[Run]) -> int:
        """Return a generous time limit for Runs in sequence: a cluster ends what exceeds it."""
        expected = [self.expected(run) for run in runs]
        factor, least = LIMITS[all(one.is_measured for one in expected)]
        return max(least, math.ceil(factor * math.fsum(one.seconds for one in expected) / 60))

    def memory_mb(self, run: Run) -> int:
        """Return the expected peak memory of a Run on each of its nodes in megabytes.

        It is generous, because a cluster kills what exceeds it.
        """
        expected = self.expected(run)
        processes_mb = FORKED_MB * (1 - (-run.processes // run.nodes))  # on a node
        of_node_mb = expected.bytes / run.nodes / 1e6
        torch_mb = 0 if self.is_forked else TORCH_MB
        if expected.is_measured:
            return torch_mb + round(max(processes_mb, MEMORY_MARGIN * of_node_mb))
        return torch_mb + round(processes_mb + of_node_mb)

    def _sizes(self, run: Run) -> Sizes | None:
        """Return Sizes.of(run), which may look for files, once for each part of a dataset."""
        part = (run.folds, run.fold, run.inner_folds, run.inner_fold, run.train_size)
        key = (run.dataset.label, *part, run.validation, run.final)
        if key not in self.known_sizes:
            self.known_sizes[key] = Sizes.of(run)
        return self.known_sizes[key]

    def _of_finished(self, run: Run) -> Expected | None:
        """Estimate by a finished run of its kind; None: there is none."""
        settings, sizes = json.loads(run.to_json()), self._sizes(run)
        for path in self.paths_of_kind.get(_kind(run), ()):
            if not self.folder.has(path) or self._sizes(self.table.runs[path]) != sizes:
                continue
            try:
                metrics = run_files.metrics(self.folder.run(path))
            except (OSError, ValueError):  # reported when it is collected
                continue
            is_same = all(metrics["settings"].get(key) == settings[key] for key in COMPARED)
            if is_same and not metrics["diverged"]:
                seconds = sum(part["ended"] - part["started"] for part in metrics["sessions"])
                return Expected(seconds, metrics["peak_memory_bytes"], is_measured=True)
        return None

    def _of_smoke_test(self, run: Run) -> Expected:
        """Estimate seconds and bytes by a step of its model, without those of torch."""
        trial = preflight.trial(run)
        counts = UNKNOWN | (self.tried_out.get(trial[0], {}) if trial else {})
        sizes = self._sizes(run) or UNKNOWN_SIZES
        is_stacked = counts.get("is_stacked") and run.may_be_stacked
        gain = STACK_GAIN if is_stacked else 1.0
        batch = run.batch_size or sizes.train  # an estimator is fitted in a single step
        epoch = sizes.train * counts["seconds"] + sizes.train / batch * STEP
        scorings = run.epochs if self.table.conditions[run.path].curves else 1
        scoring = scorings * sizes.held_out * counts["seconds"] * SCORING
        used = min(run.cores, run.nodes * self.cores)  # more processes than cores share them
        seconds = self.start_up + run.epochs * epoch / gain / used**SCALING + scoring
        activations = ACTIVATION_FACTOR * counts["activation_bytes"] * batch
        copies = COPIES * counts["weight_bytes"] * run.processes
        return Expected(seconds, activations + copies, is_measured=False)


def _kind(run: Run) -> tuple[Any, ...]:
    """Return a key that is equal for runs that differ in schedule, fold, seed or what is chosen."""
    wildcards = run.wildcards
    return (
        *(wildcards[key] for key in ("dataset", "model", "strategy", "layout", "size")),
        *(run.folds, run.inner_folds, run.batch_size, repr(run.model.options)),
    )
