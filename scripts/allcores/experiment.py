"""One run from data to results: train, score, write down."""

import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch

from allcores import costs, data, fingerprint, launch, leases, registry, results
from allcores.checkpoints import Work, save_beside
from allcores.evaluation import evaluate
from allcores.training import train

# Processes that waited for a core for more than this part of the time that they computed had to
# share it with more than their own helpers.
CONTENDED = 0.1


def conduct(run, data_folder, fold_file, work_folder, output, asked=None, pinning=True):
    """Train a Run, score it on the held-out samples, write its results.

    Args:
        run: with nothing left open.
        data_folder: the prepared dataset.
        fold_file: .npy with the fold of each sample, from data.assign_folds; None: assign them now.
        work_folder: for checkpoints; gone when the run is done.
        output: folder for metrics.json, utilisation.csv and weights.pt.
        asked: the Run as the config has it, if some of it was open.
        pinning: keep each process to cores of its own, as long as the machine has free ones.

    Returns:
        What metrics.json says.

    Raises:
        ValueError: the data are not what was prepared, or the split leaves nothing to train on.
        lifetime.RankFailedError: a process of the run died.
    """
    dataset = data.open_dataset(data_folder)
    fold_of = _fold_of(run, dataset, fold_file)
    samples, held_out = data.split(dataset.info, fold_of, run.fold, run.train_size, run.seed)
    mean, std = data.channel_statistics(dataset.moments[samples], dataset.images.shape)
    code = fingerprint.of_run(run)
    identity = run.to_json(), code, dataset.info["sha256"]["images.npy"], torch.__version__
    work = Work(work_folder, identity)
    watch = costs.Watch()
    registry.model(run.model.name).load()  # here, so that the processes share what it imports

    with leases.leased(run.cores) if pinning else nullcontext() as pins:
        launch.run_ranks(
            partial(train, run, dataset, mean, std, samples, work),
            run.workers,
            run.servers,
            run.threads_per_worker,
            once_forked=watch.start,
            pins=pins,
        )
        torch.set_num_threads(run.cores)
        trained = work.resume()
        scores = {
            epoch: evaluate(run, dataset, mean, std, held_out, work.weights(epoch))
            for epoch in (range(run.epochs) if run.curves else [run.epochs - 1])
        }
        watch.finish()
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    save_beside(work.weights(run.epochs - 1), output / "weights.pt")
    results.write_trace(output / "utilisation.csv", watch.trace)
    metrics = results.metrics(asked or run, code, dataset.info, trained, scores)
    metrics |= {
        "recipe": run.recipe,
        "train_samples": len(samples),
        "held_out_samples": len(held_out),
        "started": watch.trace[0][0],
        "ended": time.time(),
        "start_up_seconds": trained["start_up_seconds"],
        "cpu_seconds": costs.cpu_seconds(),
        "peak_memory_bytes": watch.peak_memory,
        "cores": {
            "pinned": pins,
            "waited_seconds": watch.waited,
            "contended": watch.waited > CONTENDED * watch.cpu,
        },
        "machine": costs.machine() | {"threads_per_process": trained["threads"]},
    }
    results.write_metrics(output / "metrics.json", metrics)
    work.remove()
    return metrics


def _fold_of(run, dataset, fold_file):
    if run.folds is None:
        if dataset.info["train"] == dataset.info["shape"][0]:
            raise ValueError(f"{run.dataset.label} has no test set of its own; use folds")
        return None
    if fold_file is not None:
        return np.load(fold_file)
    return data.assign_folds(dataset.labels[: dataset.info["train"]], run.folds, run.seed)
