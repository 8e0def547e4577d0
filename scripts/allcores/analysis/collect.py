"""Gather the results of a study's runs, and refuse what is not theirs."""

from pathlib import Path

import numpy as np
import pandas as pd

from allcores.analysis import metrics, tidy
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
    if curves and not metrics["conditions"]["curves"]:
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
        fold_of = _fold_of(run, folder, info)
    except (ValueError, FileNotFoundError):
        return found | identity.before_data(run)
    return identity.whole(run, info, fold_of)


def _fold_of(run, folder, info):
    key = folder, run.folds_file, run.fold if run.inner_folds else None
    if key not in _folds:
        assignable = folds.Assignable(
            np.load(folder / "targets.npy")[: info["train"]],
            np.load(folder / "groups.npy") if "groups.npy" in info["sha256"] else None,
        )
        _folds[key] = folds.of_run(run, assignable, folder / str(run.folds_file))
    return _folds[key]


def utilisation(runs):
    """CPU seconds over time of all runs, one below the other.

    Args:
        runs: [(metrics.json, folder), ...].
    """
    return pd.concat(
        pd.DataFrame(tidy.identify(metrics), index=[0]).merge(
            pd.read_csv(f"{folder}/utilisation.csv"), how="cross"
        )
        for metrics, folder in runs
    )


def predictions(runs):
    """What all runs have predicted, one below the other: of every fold what was held out there.

    Args:
        runs: as of utilisation().
    """
    return pd.concat(
        pd.DataFrame(tidy.identify(each), index=[0]).merge(
            metrics.predictions(each, folder), how="cross"
        )
        for each, folder in runs
    )
