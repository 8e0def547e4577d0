"""Gather the results of a study's runs, and refuse what is not theirs."""

import functools
from pathlib import Path

import numpy as np
import pandas as pd

from allcores.analysis import tidy
from allcores.data import storage
from allcores.data.folds import FOLDS, read_folds
from allcores.study import identity
from allcores.study.metrics_file import read_metrics


def read(path, run, data_folder, curves=False, exclusive=False):
    """The metrics at path.

    Args:
        run: the Run that they should be of.
        data_folder: where the prepared datasets are.
        curves, exclusive: whether the study asks for them, see conditions.Conditions.

    Raises:
        ValueError: they were edited, or are of another run than the config's. Snakemake retrains
            when something changes; this catches what it cannot see, such as copied results or a
            deleted `.snakemake`.
    """
    metrics = read_metrics(path)
    found, wanted = metrics["identity"], wanted_identity(run, data_folder, metrics["identity"])
    different = identity.differences(found, wanted)
    if curves and any(epoch["accuracy"] is None for epoch in metrics["epochs"]):
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
    """The identity that a run should have, on the prepared data; without them, on those of `found`.

    Args:
        found: the identity in the run's metrics.json.
    """
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
    return read_folds(folder / FOLDS.format(folds=folds, seed=seed), labels, folds)


def utilisation(all_metrics, paths):
    """CPU seconds over time of all runs, one below the other."""
    return pd.concat(
        pd.DataFrame(tidy.identify(metrics), index=[0]).merge(pd.read_csv(path), how="cross")
        for metrics, path in zip(all_metrics, paths, strict=True)
    )
