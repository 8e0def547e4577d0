"""The network of a trained run, ready for new samples."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import torch

from allcores_study.config.run import Run
from allcores_study.data import class_values
from allcores_study.data.batches import Batches
from allcores_study.data.scaling import Scaling
from allcores_study.data.tokens import Vocabulary
from allcores_study.records import fingerprint, run_files
from allcores_study.tasks import base as tasks
from allcores_study.training import evaluation, models


class Predictor:
    """A run's network, loaded from the files in its folder.

    Args:
        folder: of the run.

    Attributes:
        run: the Run.
        names: of the outputs; None: there is one.
        classes: a pandas.Index of the classes, as the training data have them; None: it predicts
            something else.
        shape, dtype: of a sample; images are "uint8", (C, H, W).
        columns: the features of a table, see storage.Samples; None: it is not a table.
        vocabulary: the tokens.Vocabulary that it knows; None: its inputs are not tokens.
        unseen: positions of the columns of categories that no training sample had.
        data: the SHA-256 of the inputs of its dataset.
        targets: a text that identifies the targets, see identity.
        edited: files and packages that the run had loaded and that are different now.

    Raises:
        ValueError: there is no such run, its files were changed, or it diverged.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder = Path(folder)
        try:
            self.metrics = metrics = run_files.metrics(folder)
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(
                f"{folder} holds no results of a run: {folder}/metrics.json is missing"
            ) from None
        if metrics["diverged"]:
            raise ValueError(f"{folder}: the run diverged and has no weights")
        if "class_values" not in metrics:
            raise ValueError(f"{folder}: the run was made by another version; train it again")
        self.run = Run.from_json(json.dumps(metrics["settings"]))
        identity = metrics["identity"]
        self.data, self.targets = json.loads(identity["inputs"])["sha256"], identity["targets"]
        self.names, self.columns = metrics["names"], metrics["columns"]
        found = metrics["class_values"]
        self.classes = None if found is None else class_values.restored(found)
        self.task = tasks.named(metrics["task"], metrics["outputs"])
        self.shape, self.dtype = tuple(metrics["shape"]), metrics["dtype"]
        self.unseen = metrics["unseen_columns"]
        self.scaling = Scaling.from_json(metrics["scaling"])
        self.vocabulary = Vocabulary.from_json(metrics["vocabulary"])
        inputs = self.shape[0] - len(self.unseen), *self.shape[1:]
        size = self.vocabulary.size if self.vocabulary else None
        self.model = models.build(self.run, inputs, self.task.outputs, size)
        weights = io.BytesIO(run_files.checked(folder, metrics, run_files.WEIGHTS))
        now = fingerprint.loaded()  # with what the model has imported
        then = metrics["loaded"].items()
        self.edited = [name for name, digest in then if now.get(name, digest) != digest]
        try:
            self.model.load_state_dict(torch.load(weights, weights_only=True))
        except RuntimeError as error:
            edited = f"; edited since: {', '.join(self.edited)}" if self.edited else ""
            raise ValueError(
                f"{folder}: its weights do not fit the model{edited}: {error}"
            ) from None
        self.model.eval()
        self.task = self.task.given_by(self.model)

    @torch.inference_mode()
    def scores(self, inputs: np.ndarray) -> np.ndarray:
        """Return the outputs of the model, (n, outputs), float32 for networks.

        With as many threads as in the run, its scores are reproduced bit for bit.

        Args:
            inputs: (n, *shape) of the dtype, or (n,) texts.

        Raises:
            ValueError: the inputs have another shape or type.
        """
        if inputs.dtype == object and self.vocabulary:
            inputs = self.vocabulary.numbers(inputs, self.shape[0])
        if inputs.shape[1:] != self.shape or inputs.dtype != self.dtype:
            raise ValueError(
                f"found samples of {inputs.dtype}, {inputs.shape[1:]}; the run was trained on "
                f"{self.dtype}, {self.shape}"
            )
        if self.unseen:
            inputs = np.delete(inputs, self.unseen, axis=1)
        source = Batches(inputs, self.scaling.mean, self.scaling.std)
        try:
            parts = list(evaluation.scores_of(self.model, source, np.arange(len(inputs))))
        except Exception as error:  # from a user's model, such as a word outside its vocabulary
            text = f"{type(error).__name__}: {error}"
            raise ValueError(
                f"{self.folder}: its model does not accept these samples ({text})"
            ) from None
        return torch.cat([self.task.kept(scores) for _, scores in parts]).numpy()

    def predictions(self, inputs: np.ndarray) -> np.ndarray:
        """Return (n, outputs), see tasks.base.Task.answers()."""
        return self.task.answers(torch.from_numpy(self.scores(inputs)), self.scaling).numpy()

    def export(self, path: str | Path) -> Path:
        """Write a file that makes these predictions in other programs; see export.export()."""
        from allcores_study.serving import export

        return export.export(self, path)
