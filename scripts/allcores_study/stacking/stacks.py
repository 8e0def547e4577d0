"""Which runs are stacked, and what a stack of them comes to: their results, one by one.

Whether a run is stacked depends on nothing but itself, so that it does not matter which others
there are: a network that stands alone is a stack of one.
"""

from __future__ import annotations

import functools
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from allcores.loop.sharding import count_batches
from allcores.machine import costs
from allcores_study.config import registry
from allcores_study.config.run import Conditions, Run
from allcores_study.data import folds, storage
from allcores_study.stacking import losses, optimizers
from allcores_study.stacking.loop import train
from allcores_study.stacking.networks import check, traced, without_gradient
from allcores_study.stacking.purity import plain_values
from allcores_study.training import models, results
from allcores_study.training.checkpoints import save_weights
from allcores_study.training.evaluation import is_over, shipped
from allcores_study.training.experiment import Execution
from allcores_study.training.prepared import Findings, PreparedRun, costs_of_node, diverged_at_last
from allcores_study.training.progress import EpochsFile

if TYPE_CHECKING:
    import numpy as np

# Networks with more weights gain nothing. Work is weights times samples times epochs; a run with
# more of it, or more steps (some seconds of either) needs checkpoints, which a stack has not.
MOST_WEIGHTS, MOST_WORK, MOST_STEPS = 20_000, 1e10, 20_000
# How many networks stand together at most, and how much work: a stack that is killed begins again.
MOST, MOST_WORK_TOGETHER = 50, 4e10

_graphs: dict[tuple[str, str, tuple[int, ...], str], Any] = {}  # see _graph_of()


@dataclass(frozen=True)
class Entry:
    """The arguments of experiment.conduct(): a run that may be stacked."""

    run: Run
    data_folder: Path
    fold_file: Path | None
    checkpoint_folder: Path
    output: Path
    request: Run
    execution: Execution
    conditions: Conditions
    cores_of_call: int | None


def stacks_of(
    entries: Iterable[Entry],
) -> tuple[list[list[tuple[Entry, PreparedRun, torch.nn.Module]]], list[tuple[Entry, str]]]:
    """Sort out which entries can be stacked, and with which others.

    Args:
        entries: list of Entry.

    Returns:
        ([[(Entry, its PreparedRun, its model), ...] of each stack, ...],
        [(an Entry that cannot be stacked, why), ...])
    """
    groups, others = defaultdict(list), []
    for entry in entries:
        try:
            prepared, model, code = _prepared(entry)
        except Exception as error:  # of a module of the user's: alone, it will say so again
            others.append((entry, str(error)))
        else:
            groups[_key(prepared, model, code)].append((entry, prepared, model))
    stacks = []
    for members in groups.values():
        work = max(_work(prepared, model) for _, prepared, model in members)
        count = max(1, min(MOST, int(MOST_WORK_TOGETHER / work)))
        stacks += [members[start : start + count] for start in range(0, len(members), count)]
    return stacks, others


def train_stacks(
    stacks: list[list[tuple[Entry, PreparedRun, torch.nn.Module]]],
    begin: Callable[[Entry], None] = lambda entry: None,
    end: Callable[[Entry], None] = lambda entry: None,
) -> None:
    """Train the stacks of stacks_of(), and write the results of their runs.

    Args:
        begin, end: called with an Entry when its training begins, and when its results are written.

    Raises:
        Exception: what a stack has ended with, once the others are trained; an ExceptionGroup, if
            several have failed.
    """
    failures = []
    spent = costs.Session([(costs.program_start("self"), 0.0)])
    for members in stacks:
        try:
            spent = _train(members, spent, begin, end)
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0] if len(failures) == 1 else ExceptionGroup("stacks failed", failures)


def problem(run: Run) -> str | None:
    """Why a Run cannot be stacked, as far as its settings tell, in words; None: it may be."""
    strategy = registry.strategies()[run.strategy.name].load()
    if run.stacked is False:
        return "its study compares ways of using the cores, or trains in turns"
    if run.processes > 1 or run.threads_per_worker != 1:
        return "it has several processes or threads"
    if not strategy.is_alone(run.processes, run.strategy.options):
        return f"{run.strategy.label} does something of its own with one worker"
    if run.stop_after:
        return "another run goes on from it"
    if run.precision != "fp32":
        return "it computes in bf16"
    if run.crop or run.flip or run.augmentation:
        return "its samples are augmented"
    return optimizers.problem(run)


def _prepared(entry: Entry) -> tuple[PreparedRun, torch.nn.Module, str]:
    """The PreparedRun of an Entry, the model that it begins with, and what its forward() computes.

    Raises:
        ValueError: it cannot be stacked, or not be trained at all.
    """
    run = entry.run
    if found := problem(run):
        raise ValueError(found)
    dataset, assigned = _data(entry.data_folder, entry.fold_file, *_folds_of(run))
    if dataset.vocabulary:
        raise ValueError("its samples are tokens")
    if found := losses.problem(run, dataset):
        raise ValueError(found)
    fold_of = assigned[run.fold or 0] if run.inner_folds else assigned  # type: ignore[index]
    prepared = PreparedRun.with_folds(run, dataset, fold_of)
    torch.manual_seed(run.seed)
    model = models.build(run, prepared.dataset.shape, prepared.dataset.task.outputs)
    if _weights(model) > MOST_WEIGHTS:
        raise ValueError("its network is too large to gain by it")
    assert run.batch_size is not None and run.optimizer is not None
    steps = run.epochs * count_batches(len(prepared.samples), run.batch_size)
    if _work(prepared, model) > MOST_WORK or steps > MOST_STEPS:
        raise ValueError("its training takes so long that it needs checkpoints")
    # The last of all, as it takes the longest.
    code, has_batch_norm, rounded = _graph_of(run, prepared.dataset.shape, model)
    if has_batch_norm and len(prepared.samples) % run.batch_size == 1:
        raise ValueError("batch norm has no statistics of a batch of one sample")
    if rounded and run.optimizer.name != "SGD":
        raise ValueError(
            f"the gradient of {rounded} is 0 up to rounding, by which Adam makes steps"
        )
    return prepared, model, code


def _graph_of(
    run: Run, shape: tuple[int, ...], model: torch.nn.Module
) -> tuple[str, bool, str | None]:
    """(The code of a model's graph, whether it has batch norm, the parameter without a gradient).

    Equal models are traced once.

    Raises:
        ValueError: see networks.traced() and check().
    """
    values = [plain_values(module) for module in model.modules()]
    key = run.model.name, repr(run.model.options), shape, repr(values)
    if key not in _graphs:
        try:
            graph = traced(model)
            check(model, shape)
            has_batch_norm = any(isinstance(m, torch.nn.BatchNorm1d) for m in graph.modules())
            _graphs[key] = graph.code, has_batch_norm, without_gradient(model, shape)
        except ValueError as error:
            _graphs[key] = error
    if isinstance(_graphs[key], ValueError):
        raise _graphs[key]
    return _graphs[key]


def _weights(model: torch.nn.Module) -> int:
    return sum(value.numel() for value in model.parameters())


def _work(prepared: PreparedRun, model: torch.nn.Module) -> int:
    return _weights(model) * len(prepared.samples) * prepared.run.epochs


def _folds_of(run: Run) -> tuple[int | None, int | None, int]:
    return run.folds, run.inner_folds, run.seed


@functools.cache
def _data(
    folder: Path, fold_file: Path | None, count: int | None, inner: int | None, seed: int
) -> tuple[storage.Dataset, np.ndarray | None]:
    """The opened dataset, and the fold of each sample, or of each outer fold; None: no folds."""
    dataset = storage.open_dataset(folder)
    if count is None and not inner:
        if dataset.info["train"] == dataset.info["shape"][0]:
            raise ValueError("its dataset has no test set of its own")
        return dataset, None
    assignable = folds.Assignable.of(dataset)
    if fold_file is None:
        return dataset, folds.assign(assignable, count or 0, inner, seed)
    return dataset, folds.read(fold_file, assignable, count or 0, inner or 0, seed)


def _key(prepared: PreparedRun, model: torch.nn.Module, code: str) -> str:
    """What the runs of a stack have in common."""
    run = prepared.run
    assert run.optimizer is not None
    shapes = [(name, tuple(value.shape)) for name, value in model.state_dict().items()]
    loss = run.loss.to_json()
    parts = run.dataset.label, run.batch_size, run.optimizer.name, loss, shapes
    return repr((*parts, code, str(model), prepared.dataset.unseen))


def _train(
    members: list[tuple[Entry, PreparedRun, torch.nn.Module]],
    before: costs.Session,
    begin: Callable[[Entry], None],
    end: Callable[[Entry], None],
) -> costs.Session:
    """Train a stack and write the results of its runs.

    Args:
        before: costs.Session of what this process had spent when the stack before this one ended.

    Returns:
        The costs.Session of what it has spent now.
    """
    entries, prepared_runs, networks = zip(*members, strict=True)
    for entry, prepared in zip(entries, prepared_runs, strict=True):
        begin(entry)
        for note in prepared.notes:
            print(note, flush=True)
        entry.output.mkdir(parents=True, exist_ok=True)
    first, share = entries[0], 1 / len(entries)
    watch = costs.Watch(os.devnull)
    best: dict[int, dict[str, torch.Tensor]] = {}
    measures: list[dict[int, dict[str, Any]]] = [{} for _ in prepared_runs]
    predicted: dict[int, dict[str, Any]] = {}

    def after_epoch(
        k: int, epochs: list[dict[str, Any]], ship: Callable[[], dict[str, torch.Tensor]]
    ) -> None:
        is_scored = entries[k].conditions.curves
        if not (
            len(prepared_runs[k].validation) or is_scored or is_over(prepared_runs[k].run, epochs)
        ):
            return
        weights = ship()
        if len(prepared_runs[k].validation):
            epochs[-1]["validation_loss"] = prepared_runs[k].validation_loss(weights)
        is_best = shipped(epochs) == len(epochs) - 1
        if is_best:
            best[k] = weights
        if is_scored:
            measures[k][len(epochs) - 1], predictions = prepared_runs[k].scores(weights)
            if is_best:
                predicted[k] = predictions

    with first.execution.leased(first.run) as watch.cores:
        if watch.cores:
            os.sched_setaffinity(0, watch.cores)
        watch.start()
        ready = time.time()
        outcomes = train(prepared_runs, networks, after_epoch)
        began = time.perf_counter()
        for k, (epochs, diverged) in enumerate(outcomes):
            if diverged is None and k not in predicted:
                measures[k][shipped(epochs)], predicted[k] = prepared_runs[k].scores(best[k])
            if diverged is None:
                last = measures[k][shipped(epochs)]
                outcomes[k] = epochs, diverged_at_last(last, epochs)
        evaluation_seconds = share * (time.perf_counter() - began)
        watch.finish()
    (spent,) = watch.sessions
    watch.sessions = [_since(before, spent)]
    whole = costs_of_node(watch)
    for k, (entry, prepared) in enumerate(zip(entries, prepared_runs, strict=True)):
        epochs, diverged = outcomes[k]
        found = Findings(
            {
                "epochs": epochs,
                "parameters": _weights(networks[k]),
                "start_up_seconds": share * (ready - before.ended),
                "threads": 1,
            },
            {} if diverged else measures[k],
            diverged,
            evaluation_seconds,
            [_slice(whole, k, len(entries))],
            stacked=True,
        )
        record = _write(entry, prepared, found, {} if diverged else best[k], predicted.get(k))
        if diverged:
            print(f"diverged: {diverged}", flush=True)
        else:
            print(
                f"{prepared.dataset.task.in_words(record)} on "
                f"{record['held_out_samples']:,} held-out samples; "
                f"{record['training_seconds']:.2f} s of training, a share of {len(entries)}",
                flush=True,
            )
        end(entry)
    return spent


def _since(before: costs.Session, session: costs.Session) -> costs.Session:
    """The costs.Session of what a process has spent since another one of it."""
    trace = [(before.ended, 0.0), (session.ended, session.cpu - before.cpu)]
    waited = session.waited - before.waited
    return costs.Session(trace, waited, session.peak_memory, session.stopped)


def _slice(whole: dict[str, Any], number: int, count: int) -> dict[str, Any]:
    """The costs of one of the runs of a stack: an equal part, as if one came after the other."""
    (session,) = whole["sessions"]
    seconds = (session["ended"] - session["started"]) / count
    started = session["started"] + number * seconds
    of_run = session | {
        "started": started,
        "ended": started + seconds,
        "cpu_seconds": session["cpu_seconds"] / count,
        "waited_seconds": session["waited_seconds"] / count,
        "stopped_seconds": session["stopped_seconds"] / count,
    }
    others = whole["others_seconds"]
    return whole | {
        "sessions": [of_run],
        "waited_seconds": whole["waited_seconds"] / count,
        "others_seconds": others and others / count,
    }


def _write(
    entry: Entry,
    prepared: PreparedRun,
    found: Findings,
    weights: dict[str, torch.Tensor],
    predictions: dict[str, Any] | None,
) -> dict[str, Any]:
    """Write the results of a run, metrics.json last; returns what that says."""
    output = entry.output
    save_weights(weights, output / "weights.pt")
    if found.diverged:
        predictions = None
    prepared.write_predictions(output / "predictions.parquet", predictions)
    EpochsFile(output).write(found.checkpoint["epochs"])
    (session,) = found.costs[0]["sessions"]
    trace = [(session["started"], 0.0), (session["ended"], session["cpu_seconds"])]
    results.write_trace(output / "utilisation.csv", [costs.Session(trace)])
    record = prepared.record(entry.request, found, entry.conditions, entry.cores_of_call, output)
    record.write(output / "metrics.json", indent=None)  # a third of the time
    return record.content
