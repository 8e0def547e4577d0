"""Several trained runs that predict together: the mean of their predictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from allcores_study.data import folds, storage
from allcores_study.data.folds import Assignable
from allcores_study.records import run_files
from allcores_study.serving.predictor import Predictor


def read(folder: str | Path, model: str | None = None) -> list[Predictor]:
    """Return the Predictors of the runs in a folder and its subfolders.

    Diverged runs are left out, and so are inner runs of a choice, which leave no weights. Final
    runs are left out unless the folder is that of one.

    Args:
        model: label of the model whose runs are read; None: all.

    Raises:
        ValueError: there is no run, or they have different datasets, columns or targets.
    """
    found = {place: run_files.metrics(place) for place in run_files.below(folder)}
    if found and all(run["settings"].get("inner_folds") for run in found.values()):
        raise ValueError(f"{folder}: has only inner runs of a choice, which leave no weights")
    outer = {place: run for place, run in found.items() if not run["settings"].get("inner_folds")}
    sound = [place for place, run in outer.items() if not run["diverged"]] or [*outer]
    labels = {place: outer[place]["settings"]["model"]["label"] for place in sound}
    if model is not None and model not in labels.values():
        known = ", ".join(dict.fromkeys(labels.values()))
        raise ValueError(f"{folder}: has no run of {model!r}; found {known}")
    of_model = [place for place in sound if model in (None, labels[place])]
    predictors = list(map(Predictor, of_model or [Path(folder)]))
    if len(predictors) > 1:
        predictors = [predictor for predictor in predictors if not predictor.run.final]
    if not predictors:
        raise ValueError(f"{folder}: has only final models; use --final")
    first = predictors[0]
    for other in predictors:
        for part, value, first_value in (
            ("datasets", other.data, first.data),
            ("columns", other.columns, first.columns),
            ("targets", other.targets, first.targets),
        ):
            if value != first_value:
                raise ValueError(
                    f"{folder}: its runs have different {part}: {first.folder} and {other.folder} "
                    f"({first.run.dataset.label}, {other.run.dataset.label}); expected the same"
                )
    return predictors


def _diverged(folder: str | Path) -> Iterator[Path]:
    """Yield the folders of diverged runs in a folder and its subfolders."""
    for place in run_files.below(folder):
        if run_files.metrics(place)["diverged"]:
            yield place


def mean(predictors: list[Predictor], inputs: np.ndarray) -> np.ndarray:
    """Return the mean of the predictions: (n, classes) float32 or (n, 1) float64."""
    first, *others = predictors
    total = first.predictions(inputs)
    for other in others:  # one at a time: the answers for masks are large
        total += other.predictions(inputs)
    return total / len(predictors)


def description(predictors: list[Predictor]) -> str:
    """Return which runs make the prediction, in words."""
    counts = Counter(predictor.run.model.label for predictor in predictors)
    if len(predictors) == 1:
        return f"by the run {predictors[0].folder}"
    listed = ", ".join(f"{count} of {label}" for label, count in counts.items())
    return f"averaged over {len(predictors)} runs ({listed})"


def unseen(predictors: list[Predictor]) -> set[int]:
    """Return the positions of the columns of categories that no run has seen."""
    return set.intersection(*(set(predictor.unseen) for predictor in predictors))


def notes(predictors: list[Predictor], inputs: np.ndarray, folder: str | Path) -> Iterator[str]:
    """Yield sentences on what may be unintended.

    They concern diverged runs in the folder, categories that a run has not seen, edited files, and
    samples that a run was trained on.
    """
    some_unseen = sorted({place for predictor in predictors for place in predictor.unseen})
    if some_unseen and (count := (inputs[:, some_unseen] == 1).any(axis=1).sum()):
        yield (
            f"{count:,} of {len(inputs):,} samples have a category that some run has not seen: "
            "that run treats it as none"
        )
    for place in _diverged(folder):
        yield f"{place} is left out: it diverged"
    if edited := sorted({name for predictor in predictors for name in predictor.edited}):
        yield f"{', '.join(edited)} differ from what the runs were trained with"
    trained = np.zeros(len(inputs), bool)
    for predictor in predictors:
        trained |= _is_trained(predictor, inputs)
    if trained.any():
        yield (
            f"{trained.sum():,} of {len(trained):,} samples are among those that "
            f"{'the run was' if len(predictors) == 1 else 'a run was'} trained on: their "
            "predictions show nothing about new samples"
        )


def _is_trained(predictor: Predictor, inputs: np.ndarray) -> np.ndarray:
    """Return which samples a run was trained on, or chose its epoch by, (n,) bool.

    All are False if its data are not there.
    """
    try:
        dataset = storage.open_dataset(predictor.data_folder)
    except (ValueError, OSError):
        return np.zeros(len(inputs), bool)
    if dataset.record.files["inputs.npy"] != predictor.data:
        return np.zeros(len(inputs), bool)
    run, ordered = predictor.run, dataset.times is not None
    fold_of = folds.of_run(run, Assignable.of(dataset))
    trained, _ = folds.split(
        *(dataset.info, fold_of, run.held_out_fold, run.train_size, run.seed),
        *(ordered, bool(run.final)),
    )
    if inputs.dtype == object:
        assert dataset.vocabulary is not None  # texts
        inputs = dataset.vocabulary.numbers(inputs, dataset.shape[0])
    places: dict[bytes, list[int]] = {}  # of the new samples, which may be fewer
    for place, row in enumerate(inputs):
        places.setdefault(np.ascontiguousarray(row).tobytes(), []).append(place)
    found = np.zeros(len(inputs), bool)
    for sample in trained:
        found[places.get(dataset.inputs[sample].tobytes(), [])] = True
    return found
