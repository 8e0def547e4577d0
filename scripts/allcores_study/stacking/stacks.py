"""Decide which runs are stacked, train the stacks, and write the results of each run.

Whether a run is stacked depends only on the run itself, so it does not matter which others there
are: a single network is a stack of one.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from allcores.loop.sharding import count_batches
from allcores.machine import costs
from allcores_study.config import registry
from allcores_study.config.run import ADDITIONS, Run
from allcores_study.data import folds, storage
from allcores_study.data.batches import seed_all
from allcores_study.records.run_files import METRICS
from allcores_study.stacking import losses, networks, optimizers
from allcores_study.stacking.loop import train
from allcores_study.training import models, progress
from allcores_study.training.evaluation import diverged_at_last, is_over, shipped
from allcores_study.training.prepared import (
    Outcome,
    PreparedRun,
    costs_of_node,
    thinned,
)

if TYPE_CHECKING:
    import numpy as np

    from allcores_study.training.evaluation import DivergedError
    from allcores_study.training.run_request import RunRequest

# Keys of ADDITIONS that a stack trains by: of another one, new in the loop, a run trains alone.
STACKED = {"clip_norm", "ema", "validation", "patience"}
# Networks with more weights gain nothing. Work is weights times samples times epochs. A run with
# more work or more steps (some seconds of either) needs checkpoints, which a stack does not have.
MOST_WEIGHTS, MOST_WORK, MOST_STEPS = 20_000, 1e10, 20_000
# The most networks and the most work in a stack, because a stack that is killed starts over.
MOST, MOST_WORK_TOGETHER = 50, 4e10


def stacks_of(
    requests: Iterable[RunRequest],
) -> tuple[list[list[Member]], list[tuple[RunRequest, str]]]:
    """Decide which runs can be stacked, and with which others.

    Returns:
        (the Members of each stack, [(the RunRequest of one that cannot be stacked, why), ...])
    """
    groups, others = defaultdict(list), []
    for request in requests:
        try:
            member, key = _member(request)
        except Exception as error:  # from the user's module, which raises it again when alone
            others.append((request, str(error)))
        else:
            groups[key].append(member)
    stacks = []
    for members in groups.values():
        work = max(_work(member.prepared, member.network) for member in members)
        count = max(1, min(MOST, int(MOST_WORK_TOGETHER / work)))
        stacks += [members[start : start + count] for start in range(0, len(members), count)]
    return stacks, others


def train_stacks(stacks: list[list[Member]]) -> None:
    """Train the stacks of stacks_of(), and write the results of their runs.

    Raises:
        Exception: raised in a stack, once the others are trained; an ExceptionGroup, if several
            have failed.
    """
    failures = []
    spent = costs.Session([(costs.program_start("self"), 0.0)])
    for members in stacks:
        try:
            spent = _train(members, spent)
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0] if len(failures) == 1 else ExceptionGroup("stacks failed", failures)


def fits(run: Run, model: torch.nn.Module, shape: Sequence[int]) -> bool:
    """Return whether the network of a Run can be stacked, for samples of a shape."""
    is_small = _weights(model) <= MOST_WEIGHTS
    return not problem(run) and is_small and not networks.problem(model, tuple(shape))


def problem(run: Run) -> str | None:
    """Return why a Run cannot be stacked, as far as its settings show; None: it may be."""
    if run.is_estimator:
        return "it is not a network"
    if run.stacked is False:
        return "its study compares ways of using the cores"
    if run.processes > 1 or run.threads_per_worker != 1:
        return "it has several processes or threads"
    if not registry.may_be_stacked(run):
        return "its network is not known to be plain"
    if not registry.strategies()[run.strategy.name].constants.get("is_plain"):
        return f"{run.strategy.label} is not plain training"
    if run.precision != "fp32":
        return "it computes in bf16"
    if run.crop or run.flip or run.augmentation:
        return "its samples are augmented"
    if unknown := [key for key in ADDITIONS if key not in STACKED and getattr(run, key)]:
        return f"stacks do not know `{unknown[0]}`"
    return optimizers.problem(run)


def _member(request: RunRequest) -> tuple[Member, str]:
    """Return a run as the Member of a stack, and what the members of that stack have in common.

    Raises:
        ValueError: it cannot be stacked, or cannot be trained at all.
    """
    run = request.run
    if found := problem(run):
        raise ValueError(found)
    dataset, assigned = _data(request.data_folder, request.fold_file, run)
    if dataset.vocabulary:
        raise ValueError("its samples are tokens")
    if found := losses.problem(run, dataset):
        raise ValueError(found)
    fold_of = assigned[run.fold or 0] if run.inner_folds else assigned  # type: ignore[index]
    prepared = PreparedRun.with_folds(run, dataset, fold_of)
    seed_all(run.seed)
    model = models.build(run, prepared.dataset.shape, prepared.dataset.task.outputs)
    if _weights(model) > MOST_WEIGHTS:
        raise ValueError("its network is too large to gain from stacking")
    assert run.batch_size is not None and run.optimizer is not None
    steps = run.epochs * count_batches(len(prepared.samples), run.batch_size)
    if _work(prepared, model) > MOST_WORK or steps > MOST_STEPS:
        raise ValueError("its training takes so long that it needs checkpoints")
    if found := networks.problem(model, prepared.dataset.shape):
        raise ValueError(found)
    return Member(request, prepared, model), _key(prepared, model)


def _weights(model: torch.nn.Module) -> int:
    return sum(value.numel() for value in model.parameters())


def _work(prepared: PreparedRun, model: torch.nn.Module) -> int:
    return _weights(model) * len(prepared.samples) * prepared.run.epochs


def _data(
    folder: Path, fold_file: Path | None, run: Run
) -> tuple[storage.Dataset, np.ndarray | None]:
    """Return the opened dataset, and what folds.assign() returns for it; None: no folds."""
    is_held_out = run.folds is None and not run.inner_folds and not run.final
    return _data_of(folder, fold_file, run.folds or 0, run.inner_folds or 0, run.seed, is_held_out)


@functools.cache
def _data_of(
    folder: Path, fold_file: Path | None, count: int, inner: int, seed: int, is_held_out: bool
) -> tuple[storage.Dataset, np.ndarray | None]:
    dataset = storage.open_dataset(folder)
    if not (count or inner):
        if is_held_out and not dataset.facts.test:
            raise ValueError("its dataset has no test set of its own")
        return dataset, None
    assignable = folds.Assignable.of(dataset)
    if fold_file is None:
        return dataset, folds.assign(assignable, count, inner or None, seed)
    return dataset, folds.read(fold_file, assignable, count, inner, seed)


def _key(prepared: PreparedRun, model: torch.nn.Module) -> str:
    """Return what the runs of a stack have in common."""
    run = prepared.run
    assert run.optimizer is not None
    shapes = [(name, tuple(value.shape)) for name, value in model.state_dict().items()]
    loss = run.loss.to_json()
    parts = run.dataset.label, run.batch_size, run.optimizer.name, loss, shapes
    return repr((*parts, str(model), prepared.dataset.unseen))


class Member:
    """A network of a stack: what it is trained on, and how it has been scored so far.

    Attributes:
        best: the weights that it ships if no better epoch follows.
        measures, predictions: as in PreparedRun.scores(), of each epoch that is scored, and of the
            one that it ships.
    """

    def __init__(
        self, request: RunRequest, prepared: PreparedRun, network: torch.nn.Module
    ) -> None:
        self.request, self.prepared, self.network = request, prepared, network
        self.best: dict[str, torch.Tensor] = {}
        self.measures: dict[int, dict[str, Any]] = {}
        self.predictions: dict[str, Any] | None = None

    def after_epoch(
        self, epochs: list[dict[str, Any]], ship: Callable[[], dict[str, torch.Tensor]]
    ) -> None:
        """Keep and score the weights after the last of these epochs, where that is needed."""
        is_scored, has_validation = self.request.conditions.curves, len(self.prepared.validation)
        if not (has_validation or is_scored or is_over(self.prepared.run, epochs)):
            return
        weights = ship()
        if has_validation:
            epochs[-1]["validation_loss"] = self.prepared.validation_loss(weights)
        is_best = shipped(epochs) == len(epochs) - 1
        if is_best:
            self.best = weights
        if is_scored:
            self.measures[len(epochs) - 1], predictions = self.prepared.scores(weights)
            if is_best:
                self.predictions = predictions

    def score(self, epochs: list[dict[str, Any]]) -> DivergedError | None:
        """Score the weights that it ships; return the DivergedError if it has diverged, or None."""
        if self.predictions is None:
            self.measures[shipped(epochs)], self.predictions = self.prepared.scores(self.best)
        return diverged_at_last(self.measures[shipped(epochs)], epochs)

    def write(self, outcome: Outcome) -> dict[str, Any]:
        """Write the results, metrics.json last; return the content of that."""
        weights = {} if outcome.diverged else self.best
        self.prepared.write_beside(self.request, weights, outcome.predictions)
        record = self.prepared.record(self.request, outcome)
        record.write(self.request.output / METRICS, indent=None)  # a third of the time
        return record.content


def _train(members: list[Member], before: costs.Session) -> costs.Session:
    """Train a stack and write the results of its runs.

    Args:
        before: what this process had spent when the stack before this one ended.

    Returns:
        What it has spent now.
    """
    for member in members:
        member.request.output.mkdir(parents=True, exist_ok=True)
        progress.of_process.begin(member.request.run)
        for note in member.prepared.notes:
            print(note, flush=True)
    first, count = members[0].request, len(members)
    watch = costs.Watch(os.devnull)
    with first.leased() as watch.cores:
        if watch.cores:
            os.sched_setaffinity(0, watch.cores)
        watch.start()
        start_up = (time.time() - before.ended) / count
        ends = train(
            [member.prepared for member in members],
            [member.network for member in members],
            lambda k, epochs, ship: members[k].after_epoch(epochs, ship),
        )
        began = time.perf_counter()
        for k, (member, (epochs, diverged)) in enumerate(zip(members, ends, strict=True)):
            if diverged:
                member.measures = {}
            ends[k] = epochs, diverged or member.score(epochs)
        evaluation_seconds = (time.perf_counter() - began) / count
        watch.finish()
    (spent,) = watch.sessions
    watch.sessions = [_since(before, spent)]
    whole, shares = costs_of_node(watch), _shares([epochs for epochs, _ in ends])
    for k, (member, (epochs, diverged)) in enumerate(zip(members, ends, strict=True)):
        checkpoint = {"epochs": epochs, "start_up_seconds": start_up, "threads": 1}
        checkpoint["parameters"] = _weights(member.network)
        costs_of_run = [_slice(whole, sum(shares[:k]), shares[k])]
        predictions = None if diverged else member.predictions
        outcome = Outcome(
            *(member.measures, diverged, evaluation_seconds, checkpoint, costs_of_run, predictions),
            stacked=True,
        )
        record = member.write(outcome)
        if diverged:
            print(f"{member.prepared.run.path}: diverged: {diverged}", flush=True)
        else:
            print(
                f"{member.prepared.run.path}: {member.prepared.dataset.task.in_words(record)} on "
                f"{record['held_out_samples']:,} {member.prepared.run.scored_on}; "
                f"{record['training_seconds']:.2f} s of training, its share of {count}",
                flush=True,
            )
        progress.of_process.end(progress.TRAINED, member.request.run.path)
    return spent


def _since(before: costs.Session, session: costs.Session) -> costs.Session:
    """Return what a process has spent since an earlier Session of it."""
    trace = [(before.ended, 0.0), (session.ended, session.cpu - before.cpu)]
    return costs.Session(trace, session.peak_memory, session.stopped)


def _shares(all_epochs: list[list[dict[str, Any]]]) -> list[float]:
    """Return each run's share of the costs of its stack: by the time of its epochs."""
    seconds = [
        math.fsum(spent for epoch in epochs for spent in epoch["phases"].values())
        for epochs in all_epochs
    ]
    total = math.fsum(seconds)
    return [one / total if total else 1 / len(seconds) for one in seconds]


def _slice(whole: dict[str, Any], before: float, share: float) -> dict[str, Any]:
    """Return the costs of one run of a stack, as if one came after the other.

    Args:
        before: the shares of those before it, 0..1.
    """
    (session,) = whole["sessions"]
    seconds = session["ended"] - session["started"]
    started = session["started"] + before * seconds
    cpu_seconds = share * session["cpu_seconds"]
    of_run = session | {
        "started": started,
        "ended": started + share * seconds,
        "trace": thinned([(started, 0.0), (started + share * seconds, cpu_seconds)]),
        "cpu_seconds": cpu_seconds,
        "stopped_seconds": share * session["stopped_seconds"],
    }
    others = whole["others_seconds"]
    return whole | {
        "sessions": [of_run],
        "others_seconds": others and share * others,
    }
