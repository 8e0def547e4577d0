"""Gather a study's results into tidy CSVs: runs, epochs, staleness, classes, confusion, CPU use."""

import functools
from pathlib import Path

import numpy as np
import pandas as pd

from allcores.analysis import tidy
from allcores.data import storage
from allcores.study import identity
from allcores.study.run import Run
from allcores.training import results

TIDY = ("runs", "epochs", "staleness", "classes", "confusion")


def read(path, run, data_folder, exclusive=False):
    """The metrics at path.

    Raises:
        ValueError: they were edited, or are of another run than the config's. Snakemake trains anew
            when something changes; this catches what it cannot see, such as results that were
            copied or a `.snakemake` that was deleted.
    """
    metrics = results.read_metrics(path)
    found, wanted = metrics["identity"], wanted_identity(run, data_folder, metrics["identity"])
    different = identity.differences(found, wanted)
    if run.curves and any(epoch["accuracy"] is None for epoch in metrics["epochs"]):
        different += [] if metrics["diverged"] else ["curves"]
    if exclusive and not metrics["conditions"]["exclusive"]:
        different.append("exclusive")
    if different:
        raise ValueError(
            f"{path} is of another run than the config's; different: {', '.join(different)}. "
            "Delete it to train again"
        )
    return metrics


def wanted_identity(run, data_folder, found):
    """The identity of a run on the data that lie there; where none do, on those of `found`."""
    folder = Path(data_folder) / run.dataset.label
    try:
        info = storage.read_info(folder)
        fold_of = fold_of_samples(folder, info["train"], run.folds, run.seed)
    except (ValueError, FileNotFoundError):
        return found | identity.before_data(run)
    return identity.whole(run, info, fold_of)


@functools.cache
def fold_of_samples(folder, train, folds, seed):
    if folds is None:
        return None
    labels = np.load(folder / "labels.npy")[:train]
    return storage.read_folds(folder / storage.FOLDS.format(folds=folds, seed=seed), labels, folds)


def traces(all_metrics, paths):
    """CPU seconds over time of all runs, one below the other."""
    return pd.concat(
        pd.DataFrame(tidy.identify(metrics), index=[0]).merge(pd.read_csv(path), how="cross")
        for metrics, path in zip(all_metrics, paths, strict=True)
    )


if __name__ == "__main__":
    runs = [Run.from_json(settings) for settings in snakemake.params.settings]
    alone = set(snakemake.params.exclusive)
    all_metrics, its_traces, missing = [], [], list(snakemake.params.missing)
    for run, path, trace in zip(runs, snakemake.input.metrics, snakemake.input.traces, strict=True):
        try:
            all_metrics.append(read(path, run, snakemake.params.data, run.path in alone))
            its_traces.append(trace)
        except ValueError as error:
            if not snakemake.params.missing:
                raise
            print(error)
            missing.append(run.path)
    for name in TIDY:
        getattr(tidy, name)(all_metrics).to_csv(snakemake.output[name], index=False)
    traces(all_metrics, its_traces).to_csv(snakemake.output.utilisation, index=False)
    pd.DataFrame({"run": missing}).to_csv(snakemake.output.missing, index=False)
