"""A run with its data, and the record of its results."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from allcores.files import sha256
from allcores.machine import cores, costs
from allcores_study.config import registry
from allcores_study.config.run import Run
from allcores_study.data import folds, storage
from allcores_study.data.folds import split
from allcores_study.data.scaling import Scaling
from allcores_study.records import fingerprint, identity
from allcores_study.records.identity import Record
from allcores_study.records.run_files import PREDICTIONS, WEIGHTS
from allcores_study.training import models, results
from allcores_study.training.checkpoints import save_weights
from allcores_study.training.evaluation import DivergedError, evaluate

if TYPE_CHECKING:
    from allcores_study.training.run_request import RunRequest

# A run is contended if other processes used more than this share of the time of its cores.
CONTENDED = 0.1
MOST_POINTS = 1000  # of the CPU time of a session that are recorded


@dataclass(frozen=True)
class Outcome:
    """The outcome of a training.

    Attributes:
        measures: epoch, from 0 -> what evaluation.evaluate() has measured after it.
        diverged: the DivergedError that ended it; None: it did not diverge.
        evaluation_seconds: how long scoring took.
        checkpoint: the last one, see resuming.py; {}: no epoch was completed.
        costs: what costs_of_node() returned on each node.
        predictions: columns of Task.predictions() for the held-out samples; None: it diverged.
        stacked: whether the network was trained in a stack.
    """

    measures: dict[int, dict[str, Any]]
    diverged: DivergedError | None
    evaluation_seconds: float
    checkpoint: dict[str, Any]
    costs: list[dict[str, Any]]
    predictions: dict[str, Any] | None = None
    stacked: bool = False


@dataclass(frozen=True)
class PreparedRun:
    """A Run with its data.

    Attributes:
        samples, validation, held_out: positions in the dataset, (n,) int64 each.
        scaling: that of the training samples.
        identity: identity.of_run().
        loaded: fingerprint.loaded() with the model's module.
        unknown: number of held-out samples with a category that no training sample has.
    """

    run: Run
    dataset: storage.Dataset
    fold_of: np.ndarray | None
    samples: np.ndarray
    validation: np.ndarray
    held_out: np.ndarray
    scaling: Scaling
    identity: dict[str, str | None]
    loaded: dict[str, str | None]
    unknown: int

    @classmethod
    def of(cls, run: Run, data_folder: str | Path, fold_file: str | Path | None) -> PreparedRun:
        """Return the PreparedRun of a Run.

        Args:
            data_folder: the prepared dataset.
            fold_file: from folds.write(); None: assign folds here.

        Raises:
            ValueError: the data are not what was prepared, or the split leaves nothing to train on
                or to score.
        """
        dataset = storage.open_dataset(data_folder)
        needs_test_set = run.folds is None and not run.final
        if needs_test_set and not dataset.facts.test:
            raise ValueError(f"{run.dataset.label} has no test set of its own; use folds")
        return cls.with_folds(
            run, dataset, folds.of_run(run, folds.Assignable.of(dataset), fold_file)
        )

    @classmethod
    def with_folds(
        cls, run: Run, dataset: storage.Dataset, fold_of: np.ndarray | None
    ) -> PreparedRun:
        """Return the PreparedRun of a Run on an opened storage.Dataset.

        Args:
            fold_of: from folds.of_run().
        """
        assignable, ordered = folds.Assignable.of(dataset), dataset.times is not None
        training, held_out = split(
            *(dataset.facts, fold_of, run.held_out_fold, run.train_size, run.seed),
            *(ordered, bool(run.final)),
        )
        samples, validation = folds.hold_back(assignable, training, run.validation, run.seed)
        seen = dataset.seen_by(samples)
        identity_of_run = identity.of_run(run, dataset.record, fold_of)
        # After its identity: what the model does to sys.path must not change which files are read.
        # Before forking, so that the ranks share what is imported and read from files.
        registry.model(run.model.name).load()
        loaded = fingerprint.loaded()
        unknown = dataset.count_with(seen.unseen, held_out)
        parts = samples, validation, held_out, Scaling.of(seen, samples)
        return cls(run, seen, fold_of, *parts, identity_of_run, loaded, unknown)

    @property
    def notes(self) -> Iterator[str]:
        """Sentences on what may be unintended."""
        outputs, vocabulary = self.dataset.task.outputs, self.dataset.vocabulary_size
        if said := models.note_on_supplied(self.run, self.dataset.shape, outputs, vocabulary):
            yield f"NOTE: {said}"
        if self.unknown:
            yield (
                f"NOTE: {self.unknown} of {len(self.held_out)} held-out samples have a category "
                "that no training sample has; it counts as none"
            )

    def scores(self, weights: dict[str, torch.Tensor]) -> tuple[dict[str, Any], dict[str, Any]]:
        return evaluate(self.run, self.dataset, self.scaling, self.samples, self.held_out, weights)

    def validation_loss(self, weights: dict[str, torch.Tensor]) -> float:
        """Return the loss of weights on the part of the training samples that is held back."""
        parts = self.run, self.dataset, self.scaling, self.samples, self.validation
        return evaluate(*parts, weights)[0]["loss"]

    def write_beside(
        self, request: RunRequest, weights: dict[str, Any], columns: dict[str, Any] | None
    ) -> None:
        """Write the weights that the run ships, and the predictions; an inner run leaves neither.

        Args:
            weights: a state_dict; {}: the run diverged.
            columns: what scores() returned; None: the run diverged, and the file has no rows.
        """
        if request.run.inner_folds:
            return
        save_weights(weights, request.output / WEIGHTS)
        held_out = self.held_out
        if columns is None:
            held_out, task = held_out[:0], self.dataset.task
            nothing = torch.zeros(0, *task.output_shape(self.dataset.shape))
            columns = task.predictions(task.kept(nothing).numpy(), self.scaling)
        true = self.dataset.targets[held_out]
        results.write_predictions(request.output / PREDICTIONS, held_out, true, columns)

    def record(self, request: RunRequest, outcome: Outcome) -> Record:
        """Return the Record of the run, for metrics.json; its other files are already written."""
        run, facts, checkpoint = self.run, self.dataset.facts, outcome.checkpoint
        content = {
            "identity": self.identity,
            **results.metrics(run, facts, checkpoint, outcome.measures, outcome.diverged),
            "stacked": outcome.stacked,
            "train_samples": len(self.samples),
            "validation_samples": len(self.validation),
            "held_out_samples": len(self.held_out),
            "ordered": self.dataset.times is not None,
            "grouped": self.dataset.groups is not None,
            # For texts, that in the training part; for a table, also the columns a run lacks.
            "shape": list(self.dataset.shape if self.dataset.vocabulary else facts.shape),
            "vocabulary": self.dataset.vocabulary and self.dataset.vocabulary.to_json(),
            "unseen_columns": list(self.dataset.unseen),
            "held_out_unknown": self.unknown,
            "dtype": facts.dtype,
            "scaling": self.scaling.to_json(),
            "evaluation_seconds": outcome.evaluation_seconds,
            **self._scores(request.metrics, outcome.predictions),
            **_sum_up(outcome.costs),
            "nodes": outcome.costs,
            "conditions": asdict(request.conditions)
            | {"cores_of_call": request.cores_of_call or cores.allowed()},
            "machine": _machine() | {"threads_per_process": checkpoint.get("threads")},
        }
        made_of = identity.made_of(identity.before_data(run), self.dataset.record.made_of)
        others = () if run.inner_folds else (PREDICTIONS, WEIGHTS)
        files = {name: sha256(request.output / name) for name in others}
        # As they were when the model was loaded; training and scoring may load others.
        loaded = fingerprint.loaded() | checkpoint.get("loaded", {}) | self.loaded
        return Record(made_of, files, loaded, content)

    def _scores(
        self, names: tuple[str, ...], columns: dict[str, Any] | None
    ) -> dict[str, dict[str, Any]]:
        """Return the scores to compare candidates by, and a digest of each metric's code."""
        if not names:
            return {}
        values = results.scores(names, self.dataset.targets[self.held_out], columns)
        return {
            "scores": values,
            "scored_by": {name: fingerprint.of_metric(name) for name in names},
        }


def _machine() -> dict[str, Any]:
    """Return the record of the machine on which a run was trained, and of the versions."""
    return costs.machine() | {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
    }


def costs_of_node(watch: costs.Watch) -> dict[str, Any]:
    """Return what a run has cost on this node, over all sessions, and whether it was contended.

    The CPU time of other processes on its cores decides; of a run that is not pinned, it is not
    known.
    """
    sessions = [
        {
            "started": session.started,
            "ended": session.ended,
            "cpu_seconds": session.cpu,
            "peak_memory_bytes": session.peak_memory,
            "stopped_seconds": session.stopped,
            "trace": thinned(session.trace),
        }
        for session in watch.sessions
    ]
    last = watch.sessions[-1]
    seconds = len(watch.cores or ()) * (last.ended - last.started)
    return {
        "host": platform.node(),
        "processor": cores.processor(),
        "pinned": watch.cores,
        "others_seconds": watch.others,
        "contended": (watch.others or 0.0) > CONTENDED * seconds,
        "sessions": sessions,
    }


def thinned(trace: list[tuple[float, float]]) -> list[list[float]]:
    """Return at most MOST_POINTS of [seconds since 1970, CPU seconds so far], the last included."""
    step = -(-len(trace) // MOST_POINTS)
    points = [*trace[:-1:step], trace[-1]]
    return [[round(time, 3), round(cpu, 3)] for time, cpu in points]


def _sum_up(costs_of_nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the costs of all nodes together; times and pinning are those of the first node."""
    first = costs_of_nodes[0]
    sessions = [session for node in costs_of_nodes for session in node["sessions"]]
    peaks = [
        max(session["peak_memory_bytes"] for session in node["sessions"]) for node in costs_of_nodes
    ]
    return {
        "started": first["sessions"][0]["started"],
        "ended": first["sessions"][-1]["ended"],
        "resumed": len(first["sessions"]) - 1,
        "sessions": first["sessions"],
        "cpu_seconds": sum(session["cpu_seconds"] for session in sessions),
        "peak_memory_bytes": sum(peaks),
        "cores": {
            "pinned": first["pinned"],
            "others_seconds": first["others_seconds"],
            "stopped_seconds": sum(session["stopped_seconds"] for session in first["sessions"]),
            "contended": any(node["contended"] for node in costs_of_nodes),
        },
    }
