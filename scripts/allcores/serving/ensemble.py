"""Several trained runs that predict together: the mean of what they say."""

from collections import Counter
from pathlib import Path

import numpy as np

from allcores.data import folds, storage
from allcores.data.folds import Assignable
from allcores.files import read_json
from allcores.serving.predictor import Predictor


def read(folder, model=None):
    """The Predictors of the runs in a folder and those below it.

    Runs by which candidates were judged are left out, unless there are only such, and so are those
    that diverged.

    Args:
        model: label; those of that model alone. None: of all.

    Raises:
        ValueError: there is no run, or they are not of one dataset, columns and targets.
    """
    folder = Path(folder)
    folders = sorted(file.parent for file in folder.rglob("metrics.json")) or [folder]
    diverged = set(_diverged(folder))
    ended = [each for each in folders if each not in diverged]
    predictors = [Predictor(each) for each in ended or folders]
    predictors = [each for each in predictors if not each.run.inner_folds] or predictors
    labels = dict.fromkeys(each.run.model.label for each in predictors)
    if model is not None:
        predictors = [each for each in predictors if each.run.model.label == model]
    if not predictors:
        raise ValueError(f"{folder}: has no run of {model!r}; found {', '.join(labels)}")
    first = predictors[0]
    for each in predictors:
        for what, of_each, of_first in (
            ("dataset", each.data, first.data),
            ("columns", each.columns, first.columns),
            ("targets", each.targets, first.targets),
        ):
            if of_each != of_first:
                raise ValueError(
                    f"{folder}: its runs are of different {what}: {first.folder} and {each.folder} "
                    f"({first.run.dataset.label}, {each.run.dataset.label}); expected runs of one"
                )
    return predictors


def _diverged(folder):
    """The folders of the runs that diverged, in a folder and those below it."""
    for file in sorted(Path(folder).rglob("metrics.json")):
        if read_json(file)["diverged"]:
            yield file.parent


def mean(predictors, inputs):
    """The mean of what they predict: (n, classes) float32 or (n, 1) float64."""
    return np.mean([each.predictions(inputs) for each in predictors], axis=0)


def said(predictors):
    """Of which runs the prediction is, in words."""
    counts = Counter(each.run.model.label for each in predictors)
    if len(predictors) == 1:
        return f"by the run {predictors[0].folder}"
    listed = ", ".join(f"{count} of {label}" for label, count in counts.items())
    return f"averaged over {len(predictors)} runs ({listed})"


def notes(predictors, inputs, folder):
    """Sentences, if samples are among those that a run was trained on, or runs in the folder that
    was read diverged."""
    for each in _diverged(folder):
        yield f"{each} is left out: it diverged"
    seen = np.zeros(len(inputs), bool)
    for each in predictors:
        seen |= _seen(each, inputs)
    if seen.any():
        yield (
            f"{seen.sum():,} of {len(seen):,} samples are among those that "
            f"{'the run was' if len(predictors) == 1 else 'a run was'} trained on: what is "
            "predicted of them says nothing of new ones"
        )


def _seen(predictor, inputs):
    """Which samples a run was trained on: (n,) bool. None, if its data are not there any more."""
    try:
        dataset = storage.open_dataset(predictor.data_folder)
    except (ValueError, OSError):
        return np.zeros(len(inputs), bool)
    if dataset.info["sha256"]["inputs.npy"] != predictor.data:
        return np.zeros(len(inputs), bool)
    run, ordered = predictor.run, dataset.times is not None
    fold_of = folds.of_run(run, Assignable.of(dataset))
    trained, _ = folds.split(
        dataset.info, fold_of, run.held_out_fold, run.train_size, run.seed, ordered
    )
    known = {row.tobytes() for row in dataset.inputs[trained]}
    return np.array([np.ascontiguousarray(row).tobytes() in known for row in inputs])
