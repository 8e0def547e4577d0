"""One run from data to results: train, score, and write the results."""

from __future__ import annotations

import importlib
import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from allcores.loop.worker import run_workers
from allcores.machine import costs, lifetime
from allcores.parallel import nodes
from allcores.parallel.reports import RankFailedError
from allcores_study.config import registry
from allcores_study.records import identity
from allcores_study.records.run_files import METRICS
from allcores_study.training.checkpoints import Checkpoints, RemoteCheckpoints, rendezvous
from allcores_study.training.evaluation import DivergedError, diverged_at_last, is_over, shipped
from allcores_study.training.prepared import Outcome, PreparedRun, costs_of_node

if TYPE_CHECKING:
    from allcores.parallel.nodes import Nodes
    from allcores_study.training.run_request import RunRequest


def train_and_score(request: RunRequest) -> dict[str, Any]:
    """Train a run, score it on the test fold, and write its results.

    On several nodes, the first one calls this and the others call join().

    Returns:
        The content of the Record in metrics.json. If the run diverged, it records where, and
        weights.pt is empty.

    Raises:
        ValueError: the data are not what was prepared, the split leaves nothing to train on or to
            score, or the folder of checkpoints contains other files.
        RankFailedError: a process of the run died or hangs, or another node is gone.
        TimeoutError, ConnectionError: the nodes do not find each other, or one is gone.
        KeyboardInterrupt: a signal stopped it; the same call resumes from the last checkpoint.
    """
    run, conditions, output = request.run, request.conditions, request.output
    prepared = PreparedRun.of(run, request.data_folder, request.fold_file)
    # An exclusive run does not resume from a packed one: their timings do not add up.
    resumed_by = repr((prepared.identity, conditions.exclusive))
    output.mkdir(parents=True, exist_ok=True)
    folder = request.checkpoint_folder
    with Checkpoints(folder, resumed_by, run.epochs, conditions.curves) as checkpoints:
        for note in (*prepared.notes, *checkpoints.notes):
            print(note, flush=True)
        watch = costs.Watch(checkpoints.trace)
        with (
            nodes.meet(run.nodes, 0, rendezvous(folder)) as peers,
            request.leased() as watch.cores,
        ):
            peers.share((prepared.identity, checkpoints.digest))
            diverged = _train(prepared, checkpoints, watch, request, peers)
            torch.set_num_threads(run.cores_on_node)
            measures, scored, seconds = _score(prepared, checkpoints, request, diverged)
            watch.finish()
            costs_of_nodes = peers.collect(costs_of_node(watch))

        outcome = Outcome(*measures, seconds, checkpoints.trained(), costs_of_nodes, scored)
        of_run = prepared.record(request, outcome)
        if request.ends_process:
            # Once metrics.json is there the run has ended: it must not count as stopped.
            lifetime.ignore_requests_to_stop()
        of_run.write(output / METRICS)
        checkpoints.remove()
    return of_run.content


def join(request: RunRequest, node: int) -> None:
    """Train with the workers of this node in a run whose first node is another.

    Args:
        node: number of this node, from 1.

    Raises:
        ValueError: code or data differ from those of the first node.
        RankFailedError, TimeoutError, ConnectionError, KeyboardInterrupt: as in train_and_score().
    """
    run, folder = request.run, request.checkpoint_folder
    with nodes.meet(run.nodes, node, rendezvous(folder)) as peers, request.leased() as pins:
        prepared = PreparedRun.of(run, request.data_folder, request.fold_file)
        identity_of_first, digest = peers.share()
        if identity_of_first != prepared.identity:
            parts = ", ".join(identity.differences(prepared.identity, identity_of_first))
            raise ValueError(f"node {node} differs from the first one in: {parts}")
        checkpoints = RemoteCheckpoints(folder, node, digest)
        watch = costs.Watch(checkpoints.trace)
        watch.cores = pins
        _train(prepared, checkpoints, watch, request, peers)
        watch.finish()
        peers.collect(costs_of_node(watch))


def _score(
    prepared: PreparedRun,
    checkpoints: Checkpoints,
    request: RunRequest,
    diverged: DivergedError | None,
) -> tuple[tuple[dict[int, dict[str, Any]], DivergedError | None], dict[str, Any] | None, float]:
    """Score the weights that the run ships, and write them and the predictions.

    For curves, the weights of the other epochs are also scored.

    Returns:
        ((measures, diverged) of an Outcome, the predictions or None, evaluation_seconds).
    """
    measures, weights, predictions, began = {}, {}, None, time.perf_counter()
    if not diverged:
        # The ranks are other processes: what they recorded comes from the checkpoint they wrote.
        checkpoint = checkpoints.latest()
        assert checkpoint, "all ranks have ended well"
        epochs = checkpoint["epochs"]
        assert is_over(request.run, epochs)
        last = shipped(epochs)
        others = [epoch for epoch in range(len(epochs)) if epoch != last]
        for epoch in [*(others if request.conditions.curves else []), last]:
            weights = checkpoints.weights(epoch)
            measures[epoch], predictions = prepared.scores(weights)
        diverged = diverged_at_last(measures[last], epochs)
    seconds = time.perf_counter() - began
    kept = None if diverged else predictions
    # Writing large weights takes seconds, which count for the run but not as evaluation.
    prepared.write_beside(request, {} if diverged else weights, kept)
    return (measures, diverged), kept, seconds


def _train(
    prepared: PreparedRun,
    checkpoints: Checkpoints | RemoteCheckpoints,
    watch: costs.Watch,
    request: RunRequest,
    peers: Nodes,
) -> DivergedError | None:
    """Train in forked processes; return the DivergedError that ended the training, or None."""
    run = prepared.run
    train = partial(
        importlib.import_module(registry.trainer(run)).train,
        run,
        prepared.dataset,
        prepared.scaling,
        prepared.samples,
        prepared.validation,
        checkpoints,
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
            # scikit-learn's fit() shows no progress.
            timeout=math.inf if run.is_estimator else request.timeout,
            save_every=request.save_every,
            nodes=peers,
        )
    except RankFailedError as error:
        if not isinstance(error.cause, DivergedError):
            raise
        print(f"diverged: {error.cause}", flush=True)
        return error.cause
    return None
