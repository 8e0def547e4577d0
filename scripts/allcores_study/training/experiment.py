"""One run from data to results: train, score, and write the results."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch

from allcores.loop.worker import run_workers
from allcores.machine import costs, lifetime
from allcores.parallel import nodes
from allcores.parallel.failures import DivergedError
from allcores_study.config import registry
from allcores_study.records import identity
from allcores_study.training import results
from allcores_study.training.checkpoints import (
    Checkpoints,
    RemoteCheckpoints,
    rendezvous,
    save_weights,
)
from allcores_study.training.evaluation import is_over, shipped
from allcores_study.training.prepared import Outcome, PreparedRun, costs_of_node, diverged_at_last
from allcores_study.training.progress import EpochsFile

if TYPE_CHECKING:
    from allcores.parallel.nodes import Nodes
    from allcores_study.training.run_request import Execution, RunRequest

OF_JOBLIB = "JOBLIB_TEMP_FOLDER"  # the variable that joblib reads
SHARED = Path("/dev/shm")


def train_and_score(request: RunRequest) -> dict[str, Any]:
    """Train a run, score it on the test fold, and write its results.

    On several nodes, the first one calls this and the others call join().

    Returns:
        The content of the Record in metrics.json. If the run diverged, it records where, and
        weights.pt is empty.

    Raises:
        ValueError: the data are not what was prepared, the split leaves nothing to train on or to
            score, or the folder of checkpoints contains other files.
        failures.RankFailedError: a process of the run died or hangs, or another node is gone.
        KeyboardInterrupt: a signal stopped it; the same call resumes from the last checkpoint.
    """
    run, conditions, output = request.run, request.conditions, request.output
    prepared = PreparedRun.of(run, request.data_folder, request.fold_file)
    # An exclusive run does not resume from a packed one: their timings do not add up.
    resumed_by = repr((prepared.resumed_by, conditions.exclusive))
    output.mkdir(parents=True, exist_ok=True)
    record = EpochsFile(output)
    with (
        _private_folder() if run.is_estimator else nullcontext(),
        Checkpoints(
            request.checkpoint_folder, resumed_by, run.trained_epochs, conditions.curves
        ) as checkpoints,
    ):
        for note in (*prepared.notes, *checkpoints.notes):
            print(note, flush=True)
        watch = costs.Watch(checkpoints.trace)
        with (
            nodes.meet(run.nodes, 0, rendezvous(request.checkpoint_folder)) as peers,
            request.execution.leased(run) as watch.cores,
        ):
            peers.share((prepared.identity, checkpoints.digest))
            diverged = _train(prepared, checkpoints, record, watch, request.execution, peers)
            torch.set_num_threads(run.cores_on_node)
            scored = _score(prepared, checkpoints, request, diverged)
            watch.finish()
            costs_of_nodes = peers.collect(costs_of_node(watch))

        outcome = Outcome(*scored, checkpoints.trained(), costs_of_nodes)
        record.write(outcome.checkpoint.get("epochs", []))
        results.write_trace(output / "utilisation.csv", watch.sessions)
        of_run = prepared.record(request, outcome)
        if request.execution.ends_process:
            # Once metrics.json is there the run has ended: it must not count as stopped.
            lifetime.ignore_requests_to_stop()
        of_run.write(output / "metrics.json")
        if not run.stop_after:
            checkpoints.remove()
    return of_run.content


def join(request: RunRequest, node: int) -> None:
    """Train with the workers of this node in a run whose first node is another.

    Args:
        node: number of this node, from 1.

    Raises:
        ValueError: code or data differ from those of the first node.
        failures.RankFailedError, KeyboardInterrupt: as in train_and_score().
    """
    run, folder = request.run, request.checkpoint_folder
    with (
        nodes.meet(run.nodes, node, rendezvous(folder)) as peers,
        request.execution.leased(run) as pins,
    ):
        prepared = PreparedRun.of(run, request.data_folder, request.fold_file)
        identity_of_first, digest = peers.share()
        if identity_of_first != prepared.identity:
            parts = ", ".join(identity.differences(prepared.identity, identity_of_first))
            raise ValueError(f"node {node} differs from the first one in: {parts}")
        checkpoints = RemoteCheckpoints(folder, node, digest)
        watch = costs.Watch(checkpoints.trace)
        watch.cores = pins
        _train(prepared, checkpoints, None, watch, request.execution, peers)
        watch.finish()
        peers.collect(costs_of_node(watch))


def _score(
    prepared: PreparedRun,
    checkpoints: Checkpoints,
    request: RunRequest,
    diverged: DivergedError | None,
) -> tuple[dict[int, dict[str, Any]], DivergedError | None, float]:
    """Score the weights that the run ships, and write them and the predictions.

    For curves, the weights of the other epochs are also scored.

    Returns:
        (measures, diverged, evaluation_seconds) of an Outcome.
    """
    measures, weights, predictions, began = {}, {}, None, time.perf_counter()
    if not diverged:
        # The ranks are other processes: what they recorded comes from the checkpoint they wrote.
        checkpoint = checkpoints.latest()
        assert checkpoint, "all ranks have ended well"
        epochs = checkpoint["epochs"]
        assert is_over(request.run, epochs)
        final = shipped(epochs)
        others = [epoch for epoch in range(len(epochs)) if epoch != final]
        for epoch in [*(others if request.conditions.curves else []), final]:
            weights = checkpoints.weights(epoch)
            measures[epoch], predictions = prepared.scores(weights)
        diverged = diverged_at_last(measures[final], epochs)
    seconds = time.perf_counter() - began
    # Writing large weights takes seconds, which count for the run but not as evaluation.
    save_weights({} if diverged else weights, request.output / "weights.pt")
    kept = None if diverged else predictions
    prepared.write_predictions(request.output / "predictions.parquet", kept)
    return measures, diverged, seconds


def _train(
    prepared: PreparedRun,
    checkpoints: Checkpoints | RemoteCheckpoints,
    record: EpochsFile | None,
    watch: costs.Watch,
    execution: Execution,
    peers: Nodes,
) -> DivergedError | None:
    """Train in forked processes; return the DivergedError that ended the training, or None."""
    run = prepared.run
    assert isinstance(run.threads_per_worker, int), "auto is filled in"
    train = partial(
        importlib.import_module(registry.trainer(run)).train,
        run,
        prepared.dataset,
        prepared.scaling,
        prepared.samples,
        prepared.validation,
        checkpoints,
        record,
    )
    registry.optimizers()  # before forking, like the model in PreparedRun.of()
    registry.losses()
    try:
        run_workers(
            train,
            run.workers,
            run.servers,
            run.threads_per_worker,
            once_forked=watch.start,
            pins=watch.cores,
            timeout=execution.timeout,
            save_every=execution.save_every,
            nodes=peers,
        )
    except DivergedError as error:
        print(f"diverged: {error}", flush=True)
        return error
    return None


@contextlib.contextmanager
def _private_folder() -> Iterator[None]:
    """Give joblib, by which estimators use several processes, a private folder to share data in.

    A rank that is killed leaves it behind. If this process is killed as well, the next one that
    comes here deletes it.
    """
    place = SHARED if os.access(SHARED, os.W_OK) else Path(tempfile.gettempdir())
    for left in place.glob("estimator_*_joblib"):
        if not psutil.pid_exists(int(left.name.split("_")[1])):
            shutil.rmtree(left, ignore_errors=True)
    folder = place / f"estimator_{os.getpid()}_joblib"
    folder.mkdir(exist_ok=True)
    os.environ[OF_JOBLIB] = str(folder)
    try:
        yield
    finally:
        lifetime.end_processes_of_joblib()
        shutil.rmtree(folder, ignore_errors=True)
        del os.environ[OF_JOBLIB]
