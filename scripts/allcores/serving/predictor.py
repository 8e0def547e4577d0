"""The network of a trained run, ready for new samples."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import torch

from allcores.data.batches import Batches
from allcores.data.scaling import Scaling
from allcores.study.metrics_file import read_metrics
from allcores.study.run import Run
from allcores.training import evaluation, models


class Predictor:
    """A run's network, made from what its folder holds.

    Args:
        folder: with the run's metrics.json and weights.pt.

    Attributes:
        run: the Run, without `auto`.
        classes: their names, list of str; None: it predicts a number.
        shape, dtype: of a sample; images are "uint8", (C, H, W).
        columns: what the features of a table are, see storage.Samples; None: it is no table.

    Raises:
        ValueError: there is no such run, its record was edited, or it diverged.
    """

    def __init__(self, folder):
        record = Path(folder, "metrics.json")
        if not record.is_file():
            raise ValueError(f"{folder} holds no results of a run: {record} is missing")
        metrics = read_metrics(record)
        if metrics["diverged"]:
            raise ValueError(f"{folder}: the run diverged and has no weights")
        asked = Run.from_json(json.dumps(metrics["settings"]))
        self.run = dataclasses.replace(asked, **metrics["recipe"])
        if "scaling" not in metrics:
            raise ValueError(f"{folder}: the run was made by an older version; make it again")
        self.classes, self.columns = metrics["classes"], metrics["columns"]
        self.shape, self.dtype = tuple(metrics["shape"]), metrics["dtype"]
        self.scaling = Scaling.from_json(metrics["scaling"])
        self.model = models.build(self.run, self.shape, len(self.classes or [None]))
        self.model.load_state_dict(torch.load(Path(folder, "weights.pt"), weights_only=True))
        self.model.eval()

    @torch.inference_mode()
    def scores(self, inputs):
        """What the network says: (n, *shape) of the dtype to (n, outputs) float32.

        With as many threads as the run's own scores were made with they are the same, bit for bit.

        Raises:
            ValueError: the inputs have another shape or type.
        """
        if inputs.shape[1:] != self.shape or inputs.dtype != self.dtype:
            raise ValueError(
                f"found samples of {inputs.dtype}, {inputs.shape[1:]}; the run was trained on "
                f"{self.dtype}, {self.shape}"
            )
        source = Batches(inputs, self.scaling.mean, self.scaling.std)
        each = evaluation.scores_of(self.model, source, np.arange(len(inputs)))
        return torch.cat([scores for _, scores in each]).numpy()

    def predictions(self, inputs):
        """The probability of each class, (n, classes) float32: the softmax of scores(); or the
        number that is predicted, (n, 1) float64."""
        scores = self.scores(inputs)
        if self.classes is None:
            return self.scaling.original(scores)
        return torch.from_numpy(scores).softmax(dim=1).numpy()
