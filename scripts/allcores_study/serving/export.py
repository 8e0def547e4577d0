"""A trained run as one file that predicts without this project."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from allcores import files
from allcores_study.data import class_values
from allcores_study.data.batches import Batches
from allcores_study.datasets import _table_files

if TYPE_CHECKING:
    from allcores_study.serving.predictor import Predictor

# The name under which a file has description(), as JSON.
DESCRIPTION = "allcores.json"
LONGEST = 400  # letters of an error of torch


def export(predictor: Predictor, path: str | Path) -> Path:
    """Write a file that predicts what a Predictor does, from the same inputs.

    Args:
        path: ends in .pt2 for torch.export.load(), or in .onnx for ONNX.

    Returns:
        The path.

    Raises:
        ValueError: the model is an estimator or cannot be traced, or a package is missing.
    """
    path, label = Path(path), predictor.run.model.label
    kinds = {".pt2": _pt2, ".onnx": _onnx}
    if path.suffix not in kinds:
        raise ValueError(f"{path}: expected a name that ends in .pt2 or .onnx")
    if predictor.run.is_estimator:
        raise ValueError(f"{label} is an estimator; expected a network, which can be traced")
    try:
        content = kinds[path.suffix](predictor)
    except ImportError as error:
        raise ValueError(f"{path}: {error}; run `pip install onnx onnxscript`") from error
    except torch.onnx.OnnxExporterError as error:  # of a step that ONNX does not have
        raise ValueError(f"{path}: torch.onnx cannot convert {label} ({_said(error)})") from error
    with files.whole(path) as part:
        part.write_bytes(content)
    return path


def description(predictor: Predictor) -> str:
    """Return what a user of the file needs to know of the run, as JSON."""
    names = "names", "columns", "shape", "dtype"
    known = {name: getattr(predictor, name) for name in names}
    classes = predictor.classes
    known["classes"] = None if classes is None else class_values.plain(classes)
    vocabulary = predictor.vocabulary and predictor.vocabulary.to_json()
    of_run = {"run": predictor.run.path, "task": predictor.task.name}
    others = {"vocabulary": vocabulary, "missing_values": _missing_numbers(predictor)}
    return json.dumps(of_run | known | others)


def _pt2(predictor: Predictor) -> bytes:
    file = io.BytesIO()
    torch.export.save(_traced(predictor), file, extra_files={DESCRIPTION: description(predictor)})
    return file.getvalue()


def _onnx(predictor: Predictor) -> bytes:
    import onnxscript  # noqa: F401  (torch needs it)

    made = torch.onnx.export(
        _traced(predictor), dynamo=True, verbose=False, output_names=["predictions"]
    )
    assert made is not None
    made.model.metadata_props[DESCRIPTION] = description(predictor)
    return made.model_proto.SerializeToString()


def _traced(predictor: Predictor) -> torch.export.ExportedProgram:
    """Return a graph that takes inputs of the predictor, (n, *shape), and gives its predictions.

    Raises:
        ValueError: torch cannot trace the model.
    """
    examples = torch.zeros(2, *predictor.shape, dtype=getattr(torch, predictor.dtype))
    sizes = ({0: torch.export.Dim("batch")},)
    try:
        return torch.export.export(_Whole(predictor), (examples,), dynamic_shapes=sizes)
    except Exception as error:  # from a model whose steps depend on values
        label = predictor.run.model.label
        raise ValueError(
            f"{predictor.folder}: torch.export cannot trace {label} ({_said(error)})"
        ) from error


def _said(error: Exception) -> str:
    """Return the first lines of an error of torch; the second has the cause, if there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"[:LONGEST]


class _Whole(torch.nn.Module):
    """All that is between the inputs of a Predictor and its predictions."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        # torch.export.save() warns of weights in channels_last.
        self.model = copy.deepcopy(predictor.model).requires_grad_(False)
        self.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.task, self.scaling = predictor.task, predictor.scaling
        self.seen, self.source = torch.from_numpy(_seen(predictor)), _source(predictor)
        self.missing = _missing_numbers(predictor)
        are_numbers = [column["category"] is None for column in predictor.columns or ()]
        self.are_numbers = torch.tensor(are_numbers)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for code in self.missing:
            inputs = torch.where((inputs == code) & self.are_numbers, torch.nan, inputs)
        if len(self.seen) < inputs.shape[1]:
            inputs = inputs.index_select(1, self.seen)
        inputs = self.source.scaled(inputs)
        scores = self.model(inputs.clone()).float()  # a copy, which the model may change
        return self.task.answers(self.task.kept(scores), self.scaling)


def _missing_numbers(predictor: Predictor) -> list[float]:
    """Return the numbers that stand for a missing value in the run's table."""
    return _table_files.numbers_in(predictor.run.dataset.options.get("missing_values", ()))


def _seen(predictor: Predictor) -> np.ndarray:
    """Return the positions of the columns or channels that the model gets."""
    return np.delete(np.arange(predictor.shape[0]), predictor.unseen)


def _source(predictor: Predictor) -> Batches:
    """Return Batches without samples, which scale inputs as those of the predictor do."""
    nothing = np.empty((0, len(_seen(predictor)), *predictor.shape[1:]), predictor.dtype)
    return Batches(nothing, predictor.scaling.mean, predictor.scaling.std)
