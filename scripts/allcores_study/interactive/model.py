"""A trained model on new data, given as a DataFrame, arrays or files."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from allcores_study.serving import ensemble, final_models, output, samples
from allcores_study.serving.predictor import Predictor


class Model:
    """A trained model: one run, or several whose predictions are averaged.

    Args:
        predictors: of these runs.
    """

    def __init__(self, predictors: list[Predictor]) -> None:
        self.predictors = predictors

    @classmethod
    def of_runs(cls, folder: str | Path, label: str | None = None) -> Model:
        """Return the runs in a folder as a Model; for the arguments see ensemble.read()."""
        return cls(ensemble.read(folder, label))

    @classmethod
    def final(cls, folder: str | Path, label: str | None = None) -> Model:
        """Return the final model of a study; for the arguments see final_models.read()."""
        return cls([final_models.read(folder, label)])

    def predict(self, data: Any, unknown_as_none: bool = False) -> pd.Series | Any:
        """Return the predicted class or number of each sample.

        Args:
            data: a DataFrame with the columns of the training data, an array, or a file or folder
                that predict.py takes.
            unknown_as_none: whether a category that the training data lack counts as none of them.

        Returns:
            A Series: classes are numbers or truth values if all their names are, else texts. For
            several numbers or labels, a DataFrame with a column `predicted_NAME` for each; for
            segmentation, an array of masks.

        Raises:
            ValueError: the data do not fit the model.
        """
        table, arrays = self._answers(data, unknown_as_none)
        for array in arrays.values():
            return array
        chosen = table.filter(regex="^predicted")
        return self._typed(chosen.iloc[:, 0]) if len(chosen.columns) == 1 else chosen

    def _typed(self, predicted: pd.Series) -> pd.Series:
        """Return predicted classes as numbers or truth values if the names of all classes are."""
        classes = self.predictors[0].classes
        if classes and set(classes) <= {"False", "True"}:
            return predicted == "True"
        if classes and all(re.fullmatch("0|-?[1-9][0-9]*", name) for name in classes):
            return predicted.astype("int64")
        return predicted

    def predict_proba(self, data: Any, unknown_as_none: bool = False) -> pd.DataFrame:
        """Return the probability of each class or label; see predict().

        Raises:
            ValueError: the model predicts no classes, or the data do not fit it.
        """
        table = self._answers(data, unknown_as_none)[0].filter(regex="^p_")
        if table.columns.empty:
            raise ValueError("the model predicts numbers, not probabilities of classes")
        return table.rename(columns=lambda name: name.removeprefix("p_"))

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

    def _answers(
        self, data: Any, unknown_as_none: bool
    ) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
        """Return the table that predict.py writes, and the arrays beside it."""
        first = self.predictors[0]
        with tempfile.TemporaryDirectory() as folder:
            file = _as_file(data, first, Path(folder))
            unseen = ensemble.unseen(self.predictors)
            try:
                new = samples.read(file, first, unknown_as_none, unseen)
            except ValueError as error:
                raise ValueError(str(error).replace(str(Path(folder, file.name)), "data")) from None
        answers = ensemble.mean(self.predictors, new.inputs)
        table, _ = output.of(new, answers, first.task, first.names)
        if isinstance(data, pd.DataFrame):
            table.index = data.index
        return table, first.task.arrays(answers)

    def __repr__(self) -> str:
        return f"Model that predicts {ensemble.description(self.predictors)}"


def _as_file(data: Any, predictor: Predictor, folder: Path) -> Path:
    """Return the file with the data; they are saved there unless they are a path."""
    if isinstance(data, str | Path):
        return Path(data)
    if isinstance(data, pd.DataFrame):
        options = predictor.run.dataset.options
        used = {column["name"] for column in predictor.columns or ()} | {options.get("text")}
        kept = [name for name in data if not predictor.columns or str(name) in used]
        data[kept].rename(columns=str).to_parquet(folder / "data.parquet", index=False)
        return folder / "data.parquet"
    array = np.asarray(data)
    if array.dtype.kind not in "biuf" or isinstance(data, pd.Series):
        kind = type(data).__name__
        raise ValueError(f"data: found a {kind}; expected a DataFrame, numbers or a path")
    np.save(folder / "data.npy", array)
    return folder / "data.npy"
