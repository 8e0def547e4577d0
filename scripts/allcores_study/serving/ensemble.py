"""Several trained runs that predict together: the mean of their predictions."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from allcores_study.config.run import Run
from allcores_study.data import folds, storage
from allcores_study.data.folds import Assignable
from allcores_study.records import run_files
from allcores_study.records.identity import Record
from allcores_study.serving.predictor import Predictor

if TYPE_CHECKING:
    from allcores_study.records.run_files import RunFolder, StoredRun


def read(folder: str | Path, model: str | None = None) -> list[Predictor]:
    """Return the Predictors of the runs in a folder and its subfolders.

    Diverged runs are left out, and so are inner runs of a selection, unless there are no others.
    Final runs are left out unless the folder is that of one.

    Args:
        model: label of the model whose runs are read; of a swept model, the runs of its chosen
            candidates are; None: all.

    Raises:
        ValueError: there is no run, or they have different datasets, columns or targets, or a label
            has different hyperparameters in each fold.
    """
    found = run_files.below(folder) or [run_files.RunFolder(folder)]
    diverged = set(map(str, _diverged(folder)))
    sound = [files for files in found if str(files) not in diverged]
    of_model = sound or found
    if model is not None:
        of_model = _of_model(of_model, model, folder)
    predictors = [Predictor(files) for files in of_model]
    outer = [predictor for predictor in predictors if not predictor.run.inner_folds]
    predictors = outer or predictors
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
                    f"{folder}: its runs have different {part}: {first.files} and {other.files} "
                    f"({first.run.dataset.label}, {other.run.dataset.label}); expected the same"
                )
    return predictors


def _of_model(
    found: list[RunFolder | StoredRun], model: str, folder: str | Path
) -> list[RunFolder | StoredRun]:
    """Return the files of those runs that are of a model, or of its chosen candidates."""
    runs = [
        (files, Run.from_json(json.dumps(run_files.metrics(files)["settings"]))) for files in found
    ]
    of_label = [(files, run) for files, run in runs if run.model.label == model]
    chosen_paths, family_of = _choices(run_files.results_of(found[0]))
    trained = {repr((run.model, run.optimizer, run.batch_size)) for _, run in of_label}
    if model in family_of and len(trained) > 1:
        raise ValueError(
            f"{folder}: {model} has different hyperparameters in each fold; give --model "
            f"{family_of[model]} for the chosen candidates, or the folder of one run"
        )
    if not of_label:
        of_label = [(files, run) for files, run in runs if run.path in chosen_paths.get(model, ())]
    if not of_label:
        known = dict.fromkeys([*chosen_paths, *(run.model.label for _, run in runs)])
        raise ValueError(f"{folder}: has no run of {model!r}; found {', '.join(known)}")
    return [files for files, _ in of_label]


def _choices(results: Path | None) -> tuple[dict[str, set[str]], dict[str, str]]:
    """Return what was chosen in a folder of results; None: there is no such folder.

    Returns:
        (label of a model -> paths of the runs of its chosen candidates, label of a candidate of a
        search -> that of its model).
    """
    chosen_paths: dict[str, set[str]] = defaultdict(set)
    family_of: dict[str, str] = {}
    folder = Path(results or "", "selections")
    for file in sorted(folder.rglob("*.json")) if results else []:
        _, dataset, family, *others = file.relative_to(folder).with_suffix("").parts
        choice = Record.content_of(file)
        # Candidates kept on an earlier rung have no run with such a path.
        paths = {"/".join((dataset, label, *others)) for label in choice.get("kept", ())}
        chosen_paths[family] |= paths
        candidates = choice.get("candidates", {}).items()
        family_of |= {label: family for label, entry in candidates if "values" in entry}
    return chosen_paths, family_of


def _diverged(folder: str | Path) -> Iterator[RunFolder | StoredRun]:
    """Yield the files of diverged runs in a folder and its subfolders."""
    for files in run_files.below(folder):
        if run_files.metrics(files)["diverged"]:
            yield files


def mean(predictors: list[Predictor], inputs: np.ndarray) -> np.ndarray:
    """Return the mean of the predictions: (n, classes) float32 or (n, 1) float64."""
    return np.mean([predictor.predictions(inputs) for predictor in predictors], axis=0)


def description(predictors: list[Predictor]) -> str:
    """Return which runs make the prediction, in words."""
    counts = Counter(predictor.run.model.label for predictor in predictors)
    if len(predictors) == 1:
        return f"by the run {predictors[0].files}"
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
    for files in _diverged(folder):
        yield f"{files} is left out: it diverged"
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
    rows = {row.tobytes() for row in dataset.inputs[trained]}
    return np.array([np.ascontiguousarray(row).tobytes() in rows for row in inputs])
