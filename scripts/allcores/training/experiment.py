"""One run from data to results: train, score, write down."""

import math
import time
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import torch

from allcores.data import storage
from allcores.data.folds import assign_folds, read_folds, split
from allcores.machine import cores, costs, leases
from allcores.parallel import launch
from allcores.parallel.failures import DivergedError
from allcores.study import identity, registry
from allcores.study.conditions import Conditions
from allcores.study.metrics_file import write_metrics
from allcores.training import results
from allcores.training.checkpoints import Checkpoints, save_weights
from allcores.training.evaluation import evaluate
from allcores.training.loop import train

# A pinned run is contended if other processes used more than this share of its cores' time; one
# that is not pinned, if its threads waited for a core longer than this share of its CPU time.
CONTENDED = 0.1


def conduct(
    run,
    data_folder,
    fold_file,
    checkpoint_folder,
    output,
    asked=None,
    pinning=True,
    timeout=math.inf,
    save_every=math.inf,
    conditions=None,
    cores_of_call=None,
):
    """Train a Run, score it on the held-out samples, write its results.

    Args:
        run: without `auto`.
        data_folder: the prepared dataset.
        fold_file: the fold of each sample, from write_folds; None: assign folds here.
        checkpoint_folder: for the checkpoints; deleted when the run is done.
        output: folder for metrics.json, conditions.json, utilisation.csv and weights.pt.
        asked: the Run as the config has it, if part of it was `auto`.
        pinning: keep each process to cores of its own, as long as the machine has free ones.
        timeout: seconds without any progress after which the run is ended.
        save_every: seconds after which a checkpoint is written in the middle of an epoch.
        conditions: Conditions: what is scored and how it is measured; None: the defaults.
        cores_of_call: number of cores onto which this call of snakemake packs its runs; None: the
            cores that this process may use.

    Returns:
        The content of metrics.json. For a run that diverged it says where, and weights.pt is empty.

    Raises:
        ValueError: the data are not what was prepared, the split leaves nothing to train on or to
            score, or a folder holds files that no run wrote.
        failures.RankFailedError: a process of the run died or hangs.
    """
    output, conditions = Path(output), conditions or Conditions()
    results.refuse_foreign(output, checkpoint_folder)
    dataset = storage.open_dataset(data_folder)
    fold_of = _fold_of(run, dataset, fold_file)
    samples, held_out = split(dataset.info, fold_of, run.fold, run.train_size, run.seed)
    mean, std = storage.channel_statistics(dataset.pixel_sums[samples], dataset.images.shape)
    decisive = identity.whole(run, dataset.info, fold_of)
    # An exclusive run does not resume from a packed one: their timings do not add up.
    resumed_by = repr((decisive, conditions.exclusive))
    with Checkpoints(checkpoint_folder, resumed_by, run.epochs, conditions.curves) as checkpoints:
        for note in checkpoints.notes:
            print(note, flush=True)
        watch = costs.Watch(checkpoints.trace)
        target = partial(train, run, dataset, mean, std, samples, checkpoints)
        # Before forking, so that the ranks share what is imported and read from files.
        registry.model(run.model.name).load()
        registry.optimizers()
        registry.losses()
        with leases.leased(run.cores) if pinning else nullcontext() as pins:
            watch.cores = pins
            diverged = _train(run, target, watch, pins, timeout, save_every)
            torch.set_num_threads(run.cores)
            scores = {}
            if not diverged:
                for epoch in range(run.epochs) if conditions.curves else [run.epochs - 1]:
                    weights = checkpoints.weights(epoch)
                    scores[epoch] = evaluate(run, dataset, mean, std, held_out, weights)
                diverged = _diverged_at_last(run, scores, checkpoints.latest()["epochs"])
            watch.finish()

        asked, trained = asked or run, checkpoints.latest() or {}
        metrics = {
            "identity": decisive if asked == run else identity.whole(asked, dataset.info, fold_of),
            **results.metrics(asked, dataset.info, trained, scores, diverged),
            "recipe": run.recipe,
            "train_samples": len(samples),
            "held_out_samples": len(held_out),
            **_costs(watch),
            "cores": {"pinned": pins, **_contention(watch)},
            "conditions": asdict(conditions) | {"cores_of_call": cores_of_call or cores.allowed()},
            "machine": _machine() | {"threads_per_process": trained.get("threads")},
        }
        output.mkdir(parents=True, exist_ok=True)
        weights = {} if diverged else checkpoints.weights(run.epochs - 1)
        save_weights(weights, output / "weights.pt")
        results.write_trace(output / "utilisation.csv", watch.sessions)
        conditions.write(output)
        write_metrics(output / "metrics.json", metrics)
        checkpoints.remove()
    return metrics


def _train(run, target, watch, pins, timeout, save_every):
    """Train in processes of its own; the DivergedError that ended it, or None."""
    try:
        launch.run_ranks(
            target,
            run.workers,
            run.servers,
            run.threads_per_worker,
            once_forked=watch.start,
            pins=pins,
            timeout=timeout,
            save_every=save_every,
        )
    except DivergedError as error:
        print(f"diverged: {error}", flush=True)
        return error
    return None


def _diverged_at_last(run, scores, epochs):
    """A DivergedError if the last update made the loss not finite: only scoring shows it."""
    final = scores[run.epochs - 1]
    if math.isfinite(final["loss"]):
        return None
    return DivergedError(run.epochs, None, epochs[-1]["lr"])


def _machine():
    """Where a run was made, and with which versions."""
    return costs.machine() | {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
    }


def _costs(watch):
    """Costs of all sessions together; the last one's CPU time comes from the operating system."""
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
    sessions[-1] |= {"ended": time.time(), "cpu_seconds": costs.cpu_seconds()}
    return {
        "started": sessions[0]["started"],
        "ended": sessions[-1]["ended"],
        "resumed": len(sessions) - 1,
        "sessions": sessions,
        "cpu_seconds": sum(session["cpu_seconds"] for session in sessions),
        "peak_memory_bytes": max(session.peak_memory for session in watch.sessions),
    }


def _contention(watch):
    """Whether other processes used the run's cores.

    For a pinned run their CPU time is measured; else contention is judged by how long the run's
    threads waited for a core, which its own helper threads cause, too.
    """
    last = watch.sessions[-1]
    waited = sum(session.waited for session in watch.sessions)
    if watch.others is None:
        contended = waited > CONTENDED * sum(session.cpu for session in watch.sessions)
    else:
        contended = watch.others > CONTENDED * len(watch.cores) * (last.ended - last.started)
    return {
        "waited_seconds": waited,
        "others_seconds": watch.others,
        "contended": contended,
    }


def _fold_of(run, dataset, fold_file):
    if run.folds is None:
        if dataset.info["train"] == dataset.info["shape"][0]:
            raise ValueError(f"{run.dataset.label} has no test set of its own; use folds")
        return None
    labels = dataset.labels[: dataset.info["train"]]
    if fold_file is not None:
        return read_folds(fold_file, labels, run.folds)
    return assign_folds(labels, run.folds, run.seed)
