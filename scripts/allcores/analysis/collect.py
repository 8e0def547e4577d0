"""Gather the results of a study's runs, and refuse what is not theirs."""

from pathlib import Path

import pandas as pd

from allcores.analysis import metrics, tidy
from allcores.data import folds, storage
from allcores.files import read_json
from allcores.study import identity

# The datasets and folds of samples, which many runs share, by the place that they come from.
_datasets, _folds = {}, {}


def read(path, run, data_folder, asked):
    """The metrics at path.

    Args:
        run: the Run that they should be of.
        data_folder: where the prepared datasets are.
        asked: Conditions that the study asks for.

    Raises:
        ValueError: they were edited, or are of another run than the config's. Snakemake retrains
            when something changes; this catches what it cannot see, such as copied results or a
            deleted `.snakemake`.
    """
    metrics = read_json(path)
    found, wanted = metrics["identity"], wanted_identity(run, data_folder, metrics["identity"])
    different = identity.differences(found, wanted)
    if asked.curves and not metrics["conditions"]["curves"]:
        different += [] if metrics["diverged"] else ["curves"]
    if asked.exclusive and not metrics["conditions"]["exclusive"]:
        different.append("exclusive")
    if different:
        raise ValueError(
            f"{path} is of another run than the config's; different: {', '.join(different)}. "
            "Delete it to train again"
        )
    return metrics


def wanted_identity(run, data_folder, found):
    """The identity that a run should have, on the prepared data; on those of `found` if they are
    gone.

    Args:
        found: the identity in the run's metrics.json.

    Raises:
        ValueError: the prepared data are damaged, or the folds are of other data.
    """
    folder = Path(data_folder) / run.dataset.label
    if not (folder / "dataset.json").exists():
        return found | identity.before_data(run)
    dataset, fold_of = _opened(run, folder)
    return identity.whole(run, dataset.info, fold_of)


def _opened(run, folder):
    """The storage.Dataset in a folder, and the fold of each sample."""
    if folder not in _datasets:
        _datasets[folder] = storage.open_dataset(folder)
    dataset = _datasets[folder]
    key = folder, run.folds_file, run.fold if run.inner_folds else None
    if key not in _folds:
        file = folder / str(run.folds_file)
        kept = file if file.exists() else None  # assigned anew, they are the same
        _folds[key] = folds.of_run(run, folds.Assignable.of(dataset), kept)
    return dataset, _folds[key]


def utilisation(runs):
    """CPU seconds over time of all runs, one below the other.

    Args:
        runs: [(metrics.json, folder), ...].
    """
    return pd.concat(
        pd.DataFrame(tidy.identify(each), index=[0]).merge(
            pd.read_csv(metrics.written(each, folder, "utilisation.csv")), how="cross"
        )
        for each, folder in runs
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
