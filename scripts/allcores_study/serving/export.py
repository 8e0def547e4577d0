"""A trained run as one file that predicts without this project."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from allcores import files
from allcores_study.data.batches import Batches

if TYPE_CHECKING:
    from allcores_study.serving.predictor import Predictor

# The name under which a file has description(), as JSON.
DESCRIPTION = "allcores.json"


def export(predictor: Predictor, path: str | Path) -> Path:
    """Write a file that predicts what a Predictor does, from the same inputs.

    Args:
        path: ends in .pt2 for torch.export.load(), in .onnx for ONNX, or in .skops for
            skops.io.load(), which gives an estimator of scikit-learn.

    Returns:
        The path.

    Raises:
        ValueError: the model does not fit into such a file, or a package is missing.
    """
    path, label = Path(path), predictor.run.model.label
    kinds = {".pt2": _pt2, ".onnx": _onnx, ".skops": _skops}
    if path.suffix not in kinds:
        raise ValueError(f"{path}: expected a name that ends in .pt2, .onnx or .skops")
    is_estimator = predictor.run.is_estimator
    if is_estimator != (path.suffix == ".skops"):
        kind, suffix = (
            ("an estimator", ".skops") if is_estimator else ("a network", ".pt2 or .onnx")
        )
        raise ValueError(f"{path}: {label} is {kind}; expected a name that ends in {suffix}")
    try:
        content = kinds[path.suffix](predictor)
    except ImportError as error:
        packages = "onnx onnxscript" if path.suffix == ".onnx" else "skops"
        raise ValueError(f"{path}: {error}; run `pip install {packages}`") from error
    with files.whole(path) as part:
        part.write_bytes(content)
    return path


def description(predictor: Predictor) -> str:
    """Return what a user of the file needs to know of the run, as JSON."""
    names = "classes", "names", "columns", "shape", "dtype"
    known = {name: getattr(predictor, name) for name in names}
    vocabulary = predictor.vocabulary and predictor.vocabulary.to_json()
    of_run = {"run": predictor.run.path, "task": predictor.task.name}
    return json.dumps(of_run | known | {"vocabulary": vocabulary})


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
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(
            f"{predictor.folder}: torch.export cannot trace {predictor.run.model.label} ({text})"
        ) from error


class _Whole(torch.nn.Module):
    """All that is between the inputs of a Predictor and its predictions."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        # torch.export.save() warns of weights in channels_last.
        self.model = copy.deepcopy(predictor.model).requires_grad_(False)
        self.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.task, self.scaling = predictor.task, predictor.scaling
        self.seen, self.source = torch.from_numpy(_seen(predictor)), _source(predictor)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if len(self.seen) < inputs.shape[1]:
            inputs = inputs.index_select(1, self.seen)
        inputs = self.source.scaled(inputs)
        scores = self.model(inputs.clone()).float()  # a copy, which the model may change
        return self.task.answers(self.task.kept(scores, inputs), self.scaling)


def _seen(predictor: Predictor) -> np.ndarray:
    """Return the positions of the columns or channels that the model gets."""
    return np.delete(np.arange(predictor.shape[0]), predictor.unseen)


def _source(predictor: Predictor) -> Batches:
    """Return Batches without samples, which scale inputs as those of the predictor do."""
    nothing = np.empty((0, len(_seen(predictor)), *predictor.shape[1:]), predictor.dtype)
    return Batches(nothing, predictor.scaling.mean, predictor.scaling.std)


def _skops(predictor: Predictor) -> bytes:
    from skops import io as skops

    try:
        content = skops.dumps(_pipeline(predictor))
        # It also writes what it cannot read, such as lambdas.
        skops.loads(content, trusted=skops.get_untrusted_types(data=content))
    except Exception as error:  # whatever the parts of an estimator raise
        raise ValueError(
            f"{predictor.folder}: skops cannot hold {predictor.run.model.label} "
            f"({type(error).__name__}: {error})"
        ) from error
    file = io.BytesIO(content)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(DESCRIPTION, description(predictor))
    return file.getvalue()


def _pipeline(predictor: Predictor) -> Any:
    """Return an estimator that predicts from inputs of the predictor, in the targets' units."""
    from sklearn import compose, dummy, impute, pipeline, preprocessing

    source, estimator = _source(predictor), predictor.model.estimator
    shape = source.inputs.shape[1:]
    mean, scale = (part.expand(shape).flatten().numpy() for part in (source.mean, source.scale))
    rows = np.zeros((2, len(mean)), np.float32)
    centred = preprocessing.StandardScaler(with_std=False).fit(rows)
    # Batches multiply where StandardScaler would divide: a tree's answer depends on the last bit.
    scaled = preprocessing.MinMaxScaler().fit(rows)
    centred.mean_, scaled.scale_, scaled.min_ = mean, scale, np.zeros_like(scale)
    missing = impute.SimpleImputer(strategy="constant", fill_value=0.0).fit(rows)
    steps = [preprocessing.FunctionTransformer(np.float32)]
    if predictor.unseen:
        seen = compose.ColumnTransformer([("seen", "passthrough", _seen(predictor).tolist())])
        steps.append(seen.fit(np.zeros((2, *predictor.shape))))
    if len(shape) > 1:
        steps.append(preprocessing.FunctionTransformer(methodcaller("reshape", -1, len(mean))))
    whole = pipeline.make_pipeline(*steps, centred, scaled, missing, estimator)
    if predictor.model.gives_probabilities:
        return whole
    units = compose.TransformedTargetRegressor(
        dummy.DummyRegressor(), transformer=preprocessing.StandardScaler()
    )
    centre, spread = predictor.scaling.centre, predictor.scaling.spread
    units.fit(rows, np.stack([centre, centre]))
    units.regressor = units.regressor_ = whole
    units.transformer_.scale_ = np.atleast_1d(spread)
    return units
