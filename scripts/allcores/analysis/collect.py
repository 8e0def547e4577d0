"""Gather the results of a study's runs, and refuse what is not theirs."""

from pathlib import Path

import numpy as np
import pandas as pd

from allcores.analysis import tidy
from allcores.data import folds, storage
from allcores.study import identity
from allcores.study.metrics_file import read_metrics

# The folds of samples, which many runs share, by the file that they come from.
_folds = {}


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
        fold_of = _fold_of(run, folder, info["train"])
    except (ValueError, FileNotFoundError):
        return found | identity.before_data(run)
    return identity.whole(run, info, fold_of)


def _fold_of(run, folder, train):
    key = folder, run.folds_file, run.fold if run.inner_folds else None
    if key not in _folds:
        labels = np.load(folder / "labels.npy")[:train]
        _folds[key] = folds.of_run(run, labels, folder / str(run.folds_file))
    return _folds[key]


def utilisation(all_metrics, paths):
    """CPU seconds over time of all runs, one below the other."""
    return pd.concat(
        pd.DataFrame(tidy.identify(metrics), index=[0]).merge(pd.read_csv(path), how="cross")
        for metrics, path in zip(all_metrics, paths, strict=True)
    )
