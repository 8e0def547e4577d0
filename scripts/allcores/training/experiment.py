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
from allcores.files import sha256, write_json
from allcores.machine import cores, costs, leases
from allcores.parallel import launch, nodes
from allcores.parallel.failures import DivergedError
from allcores.study import identity, registry
from allcores.study.conditions import Conditions
from allcores.study.results_folder import RUN_FILES
from allcores.study.run import Run
from allcores.training import results
from allcores.training.checkpoints import Checkpoints, SeenFromAfar, rendezvous, save_weights
from allcores.training.evaluation import evaluate, is_over, shipped
from allcores.training.loop import train
from allcores.training.progress import Record

# A pinned run is contended if other processes used more than this share of its cores' time; one
# that is not pinned, if its threads waited for a core longer than this share of its CPU time.
CONTENDED = 0.1


@dataclass(frozen=True)
class Way:
    """How a run is carried out; none of it changes its weights.

    Attributes:
        pinning: keep each process to cores of its own, as long as the machine has free ones.
        timeout: seconds without any progress after which the run is ended.
        save_every: seconds after which a checkpoint is written in the middle of an epoch.
        interface: the network interface by which nodes reach each other; None: whichever they do.
        tensorboard: write event files for TensorBoard, too.
    """

    pinning: bool = True
    timeout: float = math.inf
    save_every: float = math.inf
    interface: str | None = None
    tensorboard: bool = False

    def leased(self, run):
        """Context of the cores that the run keeps to, or None, on this node."""
        return leases.leased(run.cores_on_node) if self.pinning else nullcontext()


def conduct(
    run,
    data_folder,
    fold_file,
    checkpoint_folder,
    output,
    asked=None,
    way=None,
    conditions=None,
    cores_of_call=None,
):
    """Train a Run, score it on the held-out samples, write its results.

    On several nodes this is what the first does; the others assist().

    Args:
        run: without `auto`.
        data_folder: the prepared dataset.
        fold_file: the fold of each sample, from write_folds or write_inner_folds; None: assign
            folds here.
        checkpoint_folder: for the checkpoints; deleted when all epochs are done.
        output: folder for results.FILES.
        asked: the Run as the config has it, if part of it was `auto`.
        way: a Way; None: the defaults.
        conditions: Conditions: what is scored and how it is measured; None: the defaults.
        cores_of_call: number of cores onto which this call of snakemake packs its runs; None: the
            cores that this process may use.

    Returns:
        The content of metrics.json. For a run that diverged it says where, and weights.pt is empty.

    Raises:
        ValueError: the data are not what was prepared, the split leaves nothing to train on or to
            score, or a folder holds files that no run wrote.
        failures.RankFailedError: a process of the run died or hangs, or another node is gone.
        KeyboardInterrupt: a signal stopped it; the same call goes on from the last checkpoint.
    """
    output, conditions, way = Path(output), conditions or Conditions(), way or Way()
    results.refuse_foreign(output, checkpoint_folder)
    task = _Task.of(run, data_folder, fold_file)
    # An exclusive run does not resume from a packed one: their timings do not add up.
    resumed_by = repr((task.resumed_by, conditions.exclusive))
    output.mkdir(parents=True, exist_ok=True)
    record, scored = Record(output, way.tensorboard), (run.trained_epochs, conditions.curves)
    with Checkpoints(checkpoint_folder, resumed_by, *scored) as checkpoints:
        for note in checkpoints.notes:
            print(note, flush=True)
        watch = costs.Watch(checkpoints.trace)
        with (
            nodes.meet(run.nodes, 0, checkpoints.rendezvous, way.interface) as met,
            way.leased(run) as watch.cores,
        ):
            met.share((task.decisive, checkpoints.digest))
            diverged = _train(task, checkpoints, record, watch, way, met)
            torch.set_num_threads(run.cores_on_node)
            scores, weights, said, began = {}, {}, None, time.perf_counter()
            if not diverged:
                epochs = checkpoints.latest()["epochs"]
                assert is_over(run, epochs), "all ranks have said that they are done"
                final = shipped(epochs)
                others = [each for each in range(len(epochs)) if each != final]
                for epoch in [*(others if conditions.curves else []), final]:
                    weights = checkpoints.weights(epoch)
                    scores[epoch], said = task.scores(weights)
                diverged = _diverged_at_last(scores[final], epochs)
            evaluation_seconds = time.perf_counter() - began
            # Large ones take seconds, which are the run's.
            save_weights({} if diverged else weights, output / "weights.pt")
            task.write_predictions(output / "predictions.parquet", None if diverged else said)
            watch.finish()
            of_nodes = met.collect(_of_node(watch))

        asked, trained, info = asked or run, checkpoints.latest() or {}, task.dataset.info
        conditions = replace(conditions, made_of=identity.made_of(asked, info["made_from"]))
        as_asked = identity.whole(asked, info, task.fold_of)
        metrics = {
            "identity": task.decisive if asked == run else as_asked,
            **results.metrics(asked, info, trained, scores, diverged),
            "recipe": run.recipe,
            "train_samples": len(task.samples),
            "validation_samples": len(task.validation),
            "held_out_samples": len(task.held_out),
            "ordered": task.dataset.times is not None,
            "grouped": task.dataset.groups is not None,
            "shape": info["shape"][1:],
            "dtype": info["dtype"],
            "scaling": task.scaling.to_json(),
            "evaluation_seconds": evaluation_seconds,
            **_together(of_nodes),
            "nodes": of_nodes,
            "conditions": asdict(conditions) | {"cores_of_call": cores_of_call or cores.allowed()},
            "machine": _machine() | {"threads_per_process": trained.get("threads")},
        }
        record.write(trained.get("epochs", []))
        results.write_trace(output / "utilisation.csv", watch.sessions)
        conditions.write(output)
        files = {name: sha256(output / name) for name in RUN_FILES if name != "metrics.json"}
        write_json(output / "metrics.json", metrics | {"files": files})
        if not run.stop_after:
            checkpoints.remove()
    return metrics


def assist(run, node, data_folder, fold_file, checkpoint_folder, way):
    """What a node but the first does: train with its workers.

    Args:
        node: which it is, from 1.
        run, data_folder, fold_file, checkpoint_folder, way: as of conduct().

    Raises:
        ValueError: code or data are not those of the first node.
        failures.RankFailedError, KeyboardInterrupt: as by conduct().
    """
    file = rendezvous(checkpoint_folder)
    with nodes.meet(run.nodes, node, file, way.interface) as met, way.leased(run) as pins:
        task = _Task.of(run, data_folder, fold_file)
        decisive, digest = met.share()
        if decisive != task.decisive:
            parts = ", ".join(identity.differences(task.decisive, decisive))
            raise ValueError(f"node {node} differs from the first one in: {parts}")
        checkpoints = SeenFromAfar(checkpoint_folder, node, digest)
        watch = costs.Watch(checkpoints.trace)
        watch.cores = pins
        _train(task, checkpoints, None, watch, way, met)
        watch.finish()
        met.collect(_of_node(watch))


@dataclass(frozen=True)
class _Task:
    """A Run with its data.

    Attributes:
        samples, validation, held_out: positions in the dataset, (n,) int64 each.
        scaling: of the training samples.
        decisive: identity.whole().
        resumed_by: that of the whole training, which one that stops early is a part of.
    """

    run: Run
    dataset: storage.Dataset
    fold_of: np.ndarray | None
    samples: np.ndarray
    validation: np.ndarray
    held_out: np.ndarray
    scaling: Scaling
    decisive: dict
    resumed_by: dict

    @classmethod
    def of(cls, run, data_folder, fold_file):
        dataset = storage.open_dataset(data_folder)
        fold_of = _fold_of(run, dataset, fold_file)
        assignable, ordered = folds.Assignable.of(dataset), dataset.times is not None
        training, held_out = split(
            dataset.info, fold_of, run.held_out_fold, run.train_size, run.seed, ordered
        )
        samples, validation = folds.hold_back(assignable, training, run.validation, run.seed)
        decisive, resumed_by = (
            identity.whole(each, dataset.info, fold_of)
            for each in (run, replace(run, stop_after=None))
        )
        scaling = Scaling.of(dataset, samples)
        parts = samples, validation, held_out
        return cls(run, dataset, fold_of, *parts, scaling, decisive, resumed_by)

    def scores(self, weights):
        told = self.run, self.dataset, self.scaling, self.samples, self.held_out
        return evaluate(*told, weights)

    def write_predictions(self, path, scores):
        targets = self.dataset.targets[self.held_out]
        results.write_predictions(path, self.held_out, targets, scores, self.scaling)


def _train(task, checkpoints, record, watch, way, met):
    """Train in processes of its own; the DivergedError that ended it, or None."""
    run = task.run
    told = task.dataset, task.scaling, task.samples, task.validation
    target = partial(train, run, *told, checkpoints, record)
    # Before forking, so that the ranks share what is imported and read from files.
    registry.model(run.model.name).load()
    registry.optimizers()
    registry.losses()
    try:
        launch.run_ranks(
            target,
            run.workers,
            run.servers,
            run.threads_per_worker,
            once_forked=watch.start,
            pins=watch.cores,
            timeout=way.timeout,
            save_every=way.save_every,
            nodes=met,
        )
    except DivergedError as error:
        print(f"diverged: {error}", flush=True)
        return error
    return None


def _diverged_at_last(measures, epochs):
    """A DivergedError if the last update made the loss not finite: only scoring shows it."""
    if math.isfinite(measures["loss"]):
        return None
    return DivergedError(len(epochs), None, epochs[-1]["lr"])


def _machine():
    """Where a run was made, and with which versions."""
    return costs.machine() | {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
    }


def _of_node(watch):
    """What a run has cost on this node, over all its sessions, and whether others disturbed it.

    Contention: for a pinned run the CPU time of other processes on its cores is measured; else it
    is judged by how long the run's threads waited for a core, which its own helper threads cause,
    too.
    """
    sessions = [
        {
            "started": session.started,
            "ended": session.ended,
            "cpu_seconds": session.cpu,
            "waited_seconds": session.waited,
            "peak_memory_bytes": session.peak_memory,
        }
        for session in watch.sessions
    ]
    last = watch.sessions[-1]
    # The last one's CPU time by the operating system's account.
    sessions[-1] |= {"ended": time.time(), "cpu_seconds": costs.cpu_seconds()}
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


def _together(of_nodes):
    """The costs of all nodes; times and pinning are those of the first."""
    first = of_nodes[0]
    peaks = [max(s["peak_memory_bytes"] for s in node["sessions"]) for node in of_nodes]
    return {
        "started": first["sessions"][0]["started"],
        "ended": first["sessions"][-1]["ended"],
        "resumed": len(first["sessions"]) - 1,
        "sessions": first["sessions"],
        "cpu_seconds": sum(s["cpu_seconds"] for node in of_nodes for s in node["sessions"]),
        "peak_memory_bytes": sum(peaks),
        "cores": {
            "pinned": first["pinned"],
            "waited_seconds": sum(node["waited_seconds"] for node in of_nodes),
            "others_seconds": first["others_seconds"],
            "contended": any(node["contended"] for node in of_nodes),
        },
    }


def _fold_of(run, dataset, fold_file):
    if run.folds is None and dataset.info["train"] == dataset.info["shape"][0]:
        raise ValueError(f"{run.dataset.label} has no test set of its own; use folds")
    return folds.of_run(run, folds.Assignable.of(dataset), fold_file)
