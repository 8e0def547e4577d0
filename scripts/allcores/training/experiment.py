"""One run from data to results: train, score, write down."""

import math
import platform
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from allcores.data import folds, storage
from allcores.data.folds import split
from allcores.data.scaling import Scaling
from allcores.files import sha256
from allcores.machine import cores, costs, leases, lifetime
from allcores.parallel import launch, nodes
from allcores.parallel.failures import DivergedError
from allcores.study import fingerprint, identity, registry
from allcores.study.identity import Conditions
from allcores.study.record import Record
from allcores.study.results_folder import RUN_FILES
from allcores.study.run import Run
from allcores.training import results
from allcores.training.checkpoints import Checkpoints, RemoteCheckpoints, rendezvous, save_weights
from allcores.training.evaluation import evaluate, is_over, shipped
from allcores.training.loop import train
from allcores.training.progress import EpochFiles

# A pinned run is contended if other processes used more than this share of its cores' time; one
# that is not pinned, if its threads waited for a core longer than this share of its CPU time.
CONTENDED = 0.1


@dataclass(frozen=True)
class Execution:
    """How a run is carried out; none of it changes its weights.

    Attributes:
        pinning: keep each process to cores of its own, as long as the machine has free ones.
        timeout: seconds without any progress after which the run is ended.
        save_every: seconds after which a checkpoint is written in the middle of an epoch.
        interface: the network interface by which nodes reach each other; None: whichever they do.
        tensorboard: write event files for TensorBoard, too.
        ends_process: whether this process ends with the run: signals are ignored once its results
            are written.
    """

    pinning: bool = True
    timeout: float = math.inf
    save_every: float = math.inf
    interface: str | None = None
    tensorboard: bool = False
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
    task = _Task.of(run, data_folder, fold_file)
    info = task.dataset.info
    conditions = conditions or Conditions()
    # An exclusive run does not resume from a packed one: their timings do not add up.
    resumed_by = repr((task.resumed_by, conditions.exclusive))
    output.mkdir(parents=True, exist_ok=True)
    record = EpochFiles(output, execution.tensorboard)
    with Checkpoints(
        checkpoint_folder, resumed_by, run.trained_epochs, conditions.curves
    ) as checkpoints:
        for note in (*task.notes, *checkpoints.notes):
            print(note, flush=True)
        watch = costs.Watch(checkpoints.trace)
        with (
            nodes.meet(run.nodes, 0, rendezvous(checkpoint_folder), execution.interface) as peers,
            execution.leased(run) as watch.cores,
        ):
            peers.share((task.identity, checkpoints.digest))
            diverged = _train(task, checkpoints, record, watch, execution, peers)
            torch.set_num_threads(run.cores_on_node)
            measures, weights, scores, began = {}, {}, None, time.perf_counter()
            if not diverged:
                # What the ranks have recorded comes by the checkpoint that they have written.
                epochs = checkpoints.latest()["epochs"]
                assert is_over(run, epochs), "all ranks have ended well"
                final = shipped(epochs)
                others = [epoch for epoch in range(len(epochs)) if epoch != final]
                for epoch in [*(others if conditions.curves else []), final]:
                    weights = checkpoints.weights(epoch)
                    measures[epoch], scores = task.scores(weights)
                diverged = _diverged_at_last(measures[final], epochs)
            evaluation_seconds = time.perf_counter() - began
            # Writing large weights takes seconds, which count as the run's.
            save_weights({} if diverged else weights, output / "weights.pt")
            task.write_predictions(output / "predictions.parquet", None if diverged else scores)
            watch.finish()
            costs_of_nodes = peers.collect(_costs_of_node(watch))

        checkpoint = checkpoints.trained()
        identity_of_request = identity.of_run(request, info, task.fold_of)
        content = {
            "identity": task.identity if request == run else identity_of_request,
            **results.metrics(request, info, checkpoint, measures, diverged),
            "recipe": run.recipe,
            "train_samples": len(task.samples),
            "validation_samples": len(task.validation),
            "held_out_samples": len(task.held_out),
            "ordered": task.dataset.times is not None,
            "grouped": task.dataset.groups is not None,
            "shape": info["shape"][1:],
            "unseen_columns": list(task.dataset.unseen),
            "held_out_unknown": task.unknown,
            "dtype": info["dtype"],
            "scaling": task.scaling.to_json(),
            "evaluation_seconds": evaluation_seconds,
            **_sum_up(costs_of_nodes),
            "nodes": costs_of_nodes,
            "conditions": asdict(conditions) | {"cores_of_call": cores_of_call or cores.allowed()},
            "machine": _machine() | {"threads_per_process": checkpoint.get("threads")},
        }
        record.write(checkpoint.get("epochs", []))
        results.write_trace(output / "utilisation.csv", watch.sessions)
        made_of = identity.made_of(identity.before_data(request), info["made_from"])
        files = {name: sha256(output / name) for name in RUN_FILES if name != "metrics.json"}
        # As they were when the model was loaded; training and scoring may load others.
        loaded = fingerprint.loaded() | checkpoint.get("loaded", {}) | task.loaded
        if execution.ends_process:
            # Once metrics.json is there the run has ended: it must not count as stopped.
            lifetime.ignore_requests_to_stop()
        Record(made_of, files, loaded, content).write(output / "metrics.json")
        if not run.stop_after:
            checkpoints.remove()
    return content


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
        nodes.meet(run.nodes, node, file, execution.interface) as peers,
        execution.leased(run) as pins,
    ):
        task = _Task.of(run, data_folder, fold_file)
        identity_of_first, digest = peers.share()
        if identity_of_first != task.identity:
            parts = ", ".join(identity.differences(task.identity, identity_of_first))
            raise ValueError(f"node {node} differs from the first one in: {parts}")
        checkpoints = RemoteCheckpoints(checkpoint_folder, node, digest)
        watch = costs.Watch(checkpoints.trace)
        watch.cores = pins
        _train(task, checkpoints, None, watch, execution, peers)
        watch.finish()
        peers.collect(_costs_of_node(watch))


@dataclass(frozen=True)
class _Task:
    """A Run with its data.

    Attributes:
        samples, validation, held_out: positions in the dataset, (n,) int64 each.
        scaling: of the training samples.
        identity: identity.of_run().
        resumed_by: the same without `stop_after`, so that a run that stopped early can be resumed
            by one that does not.
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
    identity: dict
    resumed_by: dict
    loaded: dict
    unknown: int

    @classmethod
    def of(cls, run, data_folder, fold_file):
        dataset = storage.open_dataset(data_folder)
        fold_of = _fold_of(run, dataset, fold_file)
        assignable, ordered = folds.Assignable.of(dataset), dataset.times is not None
        training, held_out = split(
            dataset.info, fold_of, run.held_out_fold, run.train_size, run.seed, ordered
        )
        samples, validation = folds.hold_back(assignable, training, run.validation, run.seed)
        seen = dataset.seen_by(samples)
        identities = [
            identity.of_run(variant, dataset.info, fold_of)
            for variant in (run, replace(run, stop_after=None))
        ]
        # After its identity: what the model does to sys.path must not change which files are read.
        # Before forking, so that the ranks share what is imported and read from files.
        registry.model(run.model.name).load()
        loaded = fingerprint.loaded()
        unknown = dataset.count_with(seen.unseen, held_out)
        parts = samples, validation, held_out, Scaling.of(seen, samples)
        return cls(run, seen, fold_of, *parts, *identities, loaded, unknown)

    @property
    def notes(self):
        """Sentences on what may be unintended."""
        if self.unknown:
            yield (
                f"NOTE: {self.unknown} of {len(self.held_out)} held-out samples have a category "
                "that no training sample has; it counts as none"
            )

    def scores(self, weights):
        return evaluate(self.run, self.dataset, self.scaling, self.samples, self.held_out, weights)

    def write_predictions(self, path, scores):
        targets = self.dataset.targets[self.held_out]
        results.write_predictions(path, self.held_out, targets, scores, self.scaling)


def _train(task, checkpoints, record, watch, execution, peers):
    """Train in forked processes; returns the DivergedError that ended the training, or None."""
    run = task.run
    target = partial(
        train,
        run,
        task.dataset,
        task.scaling,
        task.samples,
        task.validation,
        checkpoints,
        record,
    )
    registry.optimizers()  # before forking, as the model in _Task.of()
    registry.losses()
    try:
        launch.run_ranks(
            target,
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


def _diverged_at_last(measures, epochs):
    """A DivergedError if the loss is not finite after the last update: only scoring shows that."""
    if math.isfinite(measures["loss"]):
        return None
    return DivergedError(len(epochs), None, epochs[-1]["lr"])


def _machine():
    """The record of the machine on which a run was trained, and of the versions."""
    return costs.machine() | {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
    }


def _costs_of_node(watch):
    """What a run has cost on this node, over all its sessions, and whether others disturbed it.

    For a pinned run the CPU time of other processes on its cores decides; for any other, how long
    its threads waited for a core, which its own helper threads cause, too.
    """
    sessions = [
        {
            "started": session.started,
            "ended": session.ended,
            "cpu_seconds": session.cpu,
            "waited_seconds": session.waited,
            "peak_memory_bytes": session.peak_memory,
            "stopped_seconds": session.stopped,
        }
        for session in watch.sessions
    ]
    last = watch.sessions[-1]
    waited = sum(session.waited for session in watch.sessions)
    if watch.others is None:
        contended = waited > CONTENDED * sum(session.cpu for session in watch.sessions)
    else:
        contended = watch.others > CONTENDED * len(watch.cores) * (last.ended - last.started)
    return {
        "host": platform.node(),
        "processor": cores.processor(),
        "pinned": watch.cores,
        "waited_seconds": waited,
        "others_seconds": watch.others,
        "contended": contended,
        "sessions": sessions,
    }


def _sum_up(costs_of_nodes):
    """The costs of all nodes together; times and pinning are those of the first node."""
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
            "waited_seconds": sum(node["waited_seconds"] for node in costs_of_nodes),
            "others_seconds": first["others_seconds"],
            "stopped_seconds": sum(session["stopped_seconds"] for session in first["sessions"]),
            "contended": any(node["contended"] for node in costs_of_nodes),
        },
    }


def _fold_of(run, dataset, fold_file):
    if run.folds is None and dataset.info["train"] == dataset.info["shape"][0]:
        raise ValueError(f"{run.dataset.label} has no test set of its own; use folds")
    return folds.of_run(run, folds.Assignable.of(dataset), fold_file)
