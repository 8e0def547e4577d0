"""A trained model on new data: one run, or the mean of the runs of all folds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from allcores.files import read_json
from allcores_study.analysis import tidy
from allcores_study.analysis.metrics import Metric
from allcores_study.records.results_folder import FINAL_MODELS, ResultsFolder
from allcores_study.records.run_files import METRICS
from allcores_study.serving import samples, trained_on
from allcores_study.serving.predictor import Predictor
from allcores_study.training.evaluation import BATCH_SIZE

MOST_NUMBERS = 1 << 21  # of the samples that are predicted at once


@dataclass(frozen=True)
class Predictions:
    """What a model predicts.

    Attributes:
        table: a row per sample: its name, what is predicted, and the probability of each class.
        arrays: name -> what no table can hold, (n, ...), such as masks.
        notes: sentences on what may be unintended.
    """

    table: pd.DataFrame
    arrays: dict[str, np.ndarray]
    notes: list[str]


class Model:
    """A trained model: one run, or several whose predictions are averaged.

    It is an estimator of scikit-learn that is trained already, as sklearn.frozen.FrozenEstimator.

    Args:
        predictors: of these runs, which have the same dataset.
        notes: sentences on how they were chosen.

    Attributes:
        classes_: the classes, as the training data have them; a model of numbers has none.
        feature_names_in_: the columns of a table; a model of something else has none.

    Raises:
        ValueError: they were trained on different data.
    """

    def __init__(self, predictors: list[Predictor], notes: list[str] | None = None) -> None:
        first, *others = predictors
        for other in others:
            if (other.data, other.targets, other.columns) != (
                *(first.data, first.targets, first.columns),
            ):
                raise ValueError(
                    f"{other.folder} was trained on other data than {first.folder}; run the study "
                    "to the end, or take the folder of one run"
                )
        self.predictors = predictors
        self.notes = notes or []
        if first.classes is not None:
            self.classes_ = first.classes.to_numpy()
        if first.columns:
            names = dict.fromkeys(column["name"] for column in first.columns)
            self.feature_names_in_ = np.array([*names], dtype=object)
        if len(first.shape) == 1:
            self.n_features_in_ = len(names) if first.columns else first.shape[0]

    @classmethod
    def of(cls, place: str | Path, label: str | None = None, dataset: str | None = None) -> Model:
        """Return the model at a place: a run, or the model of a study that scored best.

        A study with `final: true` has models for this. Of any other, the runs of all folds and
        seeds are averaged that have the same model, schedule, strategy and training-set size.

        Args:
            place: the folder of a run, or of a study: results/CONFIG/studies/STUDY.
            label, dataset: of these labels only, in a study; None: of any.

        Raises:
            ValueError: there is no such model, or those found belong to several datasets.
        """
        for key, value in {"label": label, "dataset": dataset}.items():
            if not isinstance(value, str | None):
                raise ValueError(f"{key}: found {value!r}; expected a label")
        place = Path(place)
        if (place / METRICS).is_file():
            predictor = Predictor(place)
            if label not in (None, predictor.run.model.label):
                raise ValueError(f"{place}: is a run of {predictor.run.model.label}, not {label}")
            return cls([predictor])
        if not (place / "runs.csv").is_file():
            below = ", ".join(sorted(str(file.parent) for file in place.rglob("runs.csv")))
            raise ValueError(
                f"{place}: expected the folder of a run or of a study, such as "
                f"{below or 'results/mine/studies/first'}"
            )
        file = place / FINAL_MODELS
        found = list(_final(file) if file.is_file() else _cross_validated(place))
        known = ", ".join(dict.fromkeys(f"{one.label} of {one.dataset}" for one in found))
        fitting = [
            one for one in found if label in (None, one.label) and dataset in (None, one.dataset)
        ]
        if not fitting:
            wanted = " of ".join(filter(None, (label or "any model", dataset)))
            raise ValueError(
                f"{place}: has no {wanted}; found {known or 'only runs that diverged'}"
            )
        if len({one.dataset for one in fitting}) > 1:
            raise ValueError(f"{place}: has models of several datasets; give one: {known}")
        return cls([Predictor(folder) for folder in fitting[0].folders], fitting[0].notes)

    def predict(self, data: Any, unknown_as_none: bool = False) -> pd.Series | Any:
        """Return the predicted class or number of each sample.

        Args:
            data: a DataFrame with the columns of the training data, an array, or a path that
                predict.py takes.
            unknown_as_none: whether a category that the training data lack counts as none of them.

        Returns:
            A Series: classes as the training data have them, or numbers. For several numbers or
            labels, a DataFrame with a column `predicted_NAME` for each; for segmentation, an array
            of masks.

        Raises:
            ValueError: the data do not fit the model.
        """
        predictions = self.predictions(data, unknown_as_none, are_compared=False)
        for array in predictions.arrays.values():
            return array
        chosen = predictions.table.filter(regex="^predicted")
        if len(chosen.columns) > 1:
            return chosen
        predicted, first = chosen.iloc[:, 0], self.predictors[0]
        if first.classes is None:
            return predicted
        numbers = pd.Index(first.names).get_indexer(predicted)
        return pd.Series(first.classes.take(numbers), predicted.index, name=predicted.name)

    def predict_proba(self, data: Any, unknown_as_none: bool = False) -> np.ndarray:
        """Return the probabilities of classes_, or of labels, (n, classes); see predict().

        Raises:
            ValueError: the model predicts no classes, or the data do not fit it.
        """
        table = self.predictions(data, unknown_as_none, are_compared=False).table
        table = table.filter(regex="^p_")
        if table.columns.empty:
            raise ValueError("the model does not give the probabilities of a sample's classes")
        return table.to_numpy()

    def score(self, data: Any, true: Any) -> float:
        """Return the accuracy, or R2 for numbers, as scikit-learn's estimators do.

        Of several labels, all have to be right. For segmentation, it is that of the pixels.
        """
        from sklearn import metrics

        from allcores_study.analysis import measures

        if self.predictors[0].task.name == "segmentation":
            return measures.pixel_accuracy(np.asarray(true), self.predict(data), None)
        measure = metrics.r2_score if self._predicts_numbers else metrics.accuracy_score
        return float(measure(true, self.predict(data)))

    @property
    def _predicts_numbers(self) -> bool:
        return self.predictors[0].task.name == "regression"

    def fit(self, data: Any, true: Any = None) -> Model:
        """Return the model as it is: a study has trained it."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags

        is_regressor, has_labels = self._predicts_numbers, self.predictors[0].classes is None
        return Tags(
            estimator_type="regressor" if is_regressor else "classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=None if is_regressor else ClassifierTags(multi_label=has_labels),
            regressor_tags=RegressorTags() if is_regressor else None,
        )

    def __sklearn_clone__(self) -> Model:
        return self  # as a frozen estimator

    def predictions(
        self, data: Any, unknown_as_none: bool = False, are_compared: bool = True
    ) -> Predictions:
        """Return all that the model says of new samples.

        Args:
            data, unknown_as_none: see predict().
            are_compared: whether a note says if they are among those of the training, all of which
                are read for that.

        Raises:
            ValueError: the data do not fit the model.
        """
        first = self.predictors[0]
        unseen = [set(predictor.unseen) for predictor in self.predictors]
        some_unseen = sorted(set.union(*unseen))
        new = samples.of(data, first, unknown_as_none, set.intersection(*unseen))
        known = trained_on.Known.of(self.predictors) if are_compared else None
        parts, unknown = [], 0
        # Some samples at a time: the answers for masks, and image files, would fill the memory.
        step = max(1, min(BATCH_SIZE, MOST_NUMBERS // math.prod(first.shape)))
        for start in tqdm(range(0, len(new.names), step), "predict", disable=None):
            inputs = new.inputs[start : start + step]
            parts.append(first.task.columns(self._mean(inputs), first.names))
            if some_unseen:
                unknown += int((inputs[:, some_unseen] == 1).any(axis=1).sum())
            if known:
                known.add(inputs)
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        arrays = {name: column for name, column in columns.items() if column.ndim > 1}
        rows = {name: column for name, column in columns.items() if name not in arrays}
        index = data.index if isinstance(data, pd.DataFrame) else None
        table = pd.DataFrame({"sample": new.names} | rows, index=index)
        notes = [*new.notes, *self.notes]
        if unknown:
            notes.append(
                f"{unknown:,} of {len(table):,} samples have a category that some run has not "
                "seen: that run treats it as none"
            )
        if edited := sorted({name for predictor in self.predictors for name in predictor.edited}):
            notes.append(f"{', '.join(edited)} differ from what the runs were trained with")
        return Predictions(table, arrays, [*notes, *(known.notes() if known else ())])

    def _mean(self, inputs: np.ndarray) -> np.ndarray:
        """Return the mean of the runs' answers, see tasks.base.Task.answers()."""
        first, *others = self.predictors
        total = first.predictions(inputs)
        for other in others:
            total += other.predictions(inputs)
        return total / len(self.predictors)

    def export(self, path: str | Path) -> Path:
        """Write a file that makes these predictions in other programs.

        Args:
            path: ends in .pt2 or .onnx; see serving.export.export().

        Returns:
            The path.

        Raises:
            ValueError: these are several runs, or their model does not fit into such a file.
        """
        if len(self.predictors) > 1:
            raise ValueError(
                f"{path}: the average of {len(self.predictors)} runs cannot be exported; train one "
                "on all data by `final: true` in the study, or take the folder of one run"
            )
        return self.predictors[0].export(path)

    def __str__(self) -> str:
        first = self.predictors[0]
        if len(self.predictors) == 1:
            return f"the run {first.folder}"
        run = first.run
        settings = ", ".join((run.model.label, run.schedule.label, run.strategy.label))
        return f"the mean of {len(self.predictors)} runs ({settings})"

    def __repr__(self) -> str:
        return f"Model that predicts by {self}"


@dataclass(frozen=True)
class _Found:
    """A model of a study, with the folders of its runs."""

    dataset: str
    label: str
    folders: list[Path]
    notes: list[str] = field(default_factory=list)


def _final(file: Path) -> Iterator[_Found]:
    """Yield the models of a study that were trained on all samples, the best first."""
    for entry in read_json(file)["models"]:
        yield _Found(entry["dataset"], entry["model"], [file.parent / entry["folder"]])


def _cross_validated(study: Path) -> Iterator[_Found]:
    """Yield what the runs of a study have in common that are repeats, the best first."""
    from allcores_study.analysis import comparison  # not at the top: it imports scipy

    runs = tidy.read(study / "runs.csv")
    metric = Metric.of(runs.columns[runs.columns.get_loc("score") + 1])
    folder = ResultsFolder(str(study.absolute().parents[1]))
    sound = runs[runs["diverged"].isna()]
    groups = sound.groupby(tidy.SETTINGS)
    means = pd.Series({key: metric.sign * comparison.mean(group) for key, group in groups})
    all_runs = dict(iter(runs.groupby(tidy.SETTINGS)))
    for key in means.sort_values(ascending=False, kind="stable").index:
        of_key = all_runs[key]
        lost = of_key[of_key["diverged"].notna()]
        notes = [f"{folder.run(path)} is left out: it diverged" for path in lost["path"]]
        kept = [Path(folder.run(path)) for path in of_key.drop(lost.index)["path"]]
        first = of_key.iloc[0]
        yield _Found(first["dataset"], first["model"], kept, notes)
