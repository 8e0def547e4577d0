"""One run from data to results: train, score, write down."""

import contextlib
import importlib
import math
import os
import shutil
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import torch

from allcores.loop.worker import run_workers
from allcores.machine import costs, leases, lifetime
from allcores.parallel import nodes
from allcores.parallel.failures import DivergedError
from allcores_study.config import registry
from allcores_study.config.run import Conditions
from allcores_study.records import identity
from allcores_study.training import results
from allcores_study.training.checkpoints import (
    Checkpoints,
    RemoteCheckpoints,
    rendezvous,
    save_weights,
)
from allcores_study.training.evaluation import is_over, shipped
from allcores_study.training.prepared import Findings, PreparedRun, costs_of_node, diverged_at_last
from allcores_study.training.progress import EpochsFile

OF_JOBLIB = "JOBLIB_TEMP_FOLDER"  # the variable that joblib reads
SHARED = Path("/dev/shm")


@dataclass(frozen=True)
class Execution:
    """How a run is carried out; none of it changes its weights.

    Attributes:
        pinning: keep each process to cores of its own, as long as the machine has free ones.
        timeout: seconds without any progress after which the run is ended.
        save_every: seconds after which a checkpoint is written in the middle of an epoch.
        ends_process: whether this process ends with the run: signals are ignored once its results
            are written.
    """

    pinning: bool = True
    timeout: float = math.inf
    save_every: float = math.inf
    ends_process: bool = False

    def leased(self, run):
        """Context of the cores that the run keeps to, or None, on this node."""
        return leases.leased(run.cores_on_node) if self.pinning else nullcontext()


def conduct(
    run,
    data_folder,
    fold_file,
    checkpoint_folder,
    output,
    request=None,
    execution=None,
    conditions=None,
    cores_of_call=None,
):
    """Train a Run, score it on the held-out samples, write its results.

    On several nodes the first one calls this, the others call assist().

    Args:
        run: without `auto`.
        data_folder: the prepared dataset.
        fold_file: the fold of each sample, from folds.write(); None: assign
            folds here.
        checkpoint_folder: for the checkpoints, which are deleted once the results are written,
            unless another run goes on from them (`stop_after`).
        output: folder for results_folder.RUN_FILES.
        request: the Run before its `auto` values were filled in; None: it had none.
        execution: an Execution; None: the defaults.
        conditions: the Conditions, what is scored and how it is measured; None: the defaults.
        cores_of_call: number of cores onto which this call of snakemake packs its runs; None: the
            cores that this process may use.

    Returns:
        The content of the Record in metrics.json. If the run diverged, it says where, and
        weights.pt is empty.

    Raises:
        ValueError: the data are not what was prepared, the split leaves nothing to train on or to
            score, or the folder of checkpoints holds other files.
        failures.RankFailedError: a process of the run died or hangs, or another node is gone.
        KeyboardInterrupt: a signal stopped it; the same call continues from the last checkpoint.
    """
    output, execution, request = Path(output), execution or Execution(), request or run
    prepared = PreparedRun.of(run, data_folder, fold_file)
    conditions = conditions or Conditions()
    # An exclusive run does not resume from a packed one: their timings do not add up.
    resumed_by = repr((prepared.resumed_by, conditions.exclusive))
    output.mkdir(parents=True, exist_ok=True)
    record = EpochsFile(output)
    with (
        _private_folder() if run.is_estimator else nullcontext(),
        Checkpoints(
            checkpoint_folder, resumed_by, run.trained_epochs, conditions.curves
        ) as checkpoints,
    ):
        for note in (*prepared.notes, *checkpoints.notes):
            print(note, flush=True)
        watch = costs.Watch(checkpoints.trace)
        with (
            nodes.meet(run.nodes, 0, rendezvous(checkpoint_folder)) as peers,
            execution.leased(run) as watch.cores,
        ):
            peers.share((prepared.identity, checkpoints.digest))
            diverged = _train(prepared, checkpoints, record, watch, execution, peers)
            torch.set_num_threads(run.cores_on_node)
            measures, weights, predictions, began = {}, {}, None, time.perf_counter()
            if not diverged:
                # What the ranks have recorded comes by the checkpoint that they have written.
                epochs = checkpoints.latest()["epochs"]
                assert is_over(run, epochs), "all ranks have ended well"
                final = shipped(epochs)
                others = [epoch for epoch in range(len(epochs)) if epoch != final]
                for epoch in [*(others if conditions.curves else []), final]:
                    weights = checkpoints.weights(epoch)
                    measures[epoch], predictions = prepared.scores(weights)
                diverged = diverged_at_last(measures[final], epochs)
            evaluation_seconds = time.perf_counter() - began
            # Writing large weights takes seconds, which count as the run's.
            save_weights({} if diverged else weights, output / "weights.pt")
            if diverged:
                predictions = None
            prepared.write_predictions(output / "predictions.parquet", predictions)
            watch.finish()
            costs_of_nodes = peers.collect(costs_of_node(watch))

        checkpoint = checkpoints.trained()
        record.write(checkpoint.get("epochs", []))
        results.write_trace(output / "utilisation.csv", watch.sessions)
        found = Findings(checkpoint, measures, diverged, evaluation_seconds, costs_of_nodes)
        of_run = prepared.record(request, found, conditions, cores_of_call, output)
        if execution.ends_process:
            # Once metrics.json is there the run has ended: it must not count as stopped.
            lifetime.ignore_requests_to_stop()
        of_run.write(output / "metrics.json")
        if not run.stop_after:
            checkpoints.remove()
    return of_run.content


def assist(run, node, data_folder, fold_file, checkpoint_folder, execution):
    """Take part in a run on a node other than the first: train with the workers of this node.

    Args:
        node: number of this node, from 1.
        run, data_folder, fold_file, checkpoint_folder, execution: as in conduct().

    Raises:
        ValueError: code or data differ from those of the first node.
        failures.RankFailedError, KeyboardInterrupt: as in conduct().
    """
    file = rendezvous(checkpoint_folder)
    with (
        nodes.meet(run.nodes, node, file) as peers,
        execution.leased(run) as pins,
    ):
        prepared = PreparedRun.of(run, data_folder, fold_file)
        identity_of_first, digest = peers.share()
        if identity_of_first != prepared.identity:
            parts = ", ".join(identity.differences(prepared.identity, identity_of_first))
            raise ValueError(f"node {node} differs from the first one in: {parts}")
        checkpoints = RemoteCheckpoints(checkpoint_folder, node, digest)
        watch = costs.Watch(checkpoints.trace)
        watch.cores = pins
        _train(prepared, checkpoints, None, watch, execution, peers)
        watch.finish()
        peers.collect(costs_of_node(watch))


def _train(prepared, checkpoints, record, watch, execution, peers):
    """Train in forked processes; returns the DivergedError that ended the training, or None."""
    run = prepared.run
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
    registry.optimizers()  # before forking, as the model in PreparedRun.of()
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
def _private_folder():
    """Context with a folder for what joblib, by which estimators use several processes, shares
    between them: a rank that is killed leaves it behind. So does this process if it is killed, to
    the next one that comes here."""
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
