"""The network of a trained run, ready for new samples."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import torch

from allcores.data.batches import ImageBatches
from allcores.study.metrics_file import read_metrics
from allcores.study.run import Run
from allcores.training import evaluation, models


class Predictor:
    """A run's network, made from what its folder holds.

    Args:
        folder: with the run's metrics.json and weights.pt.

    Attributes:
        run: the Run, without `auto`.
        classes: their names, list of str.
        shape: of an image, (C, H, W).

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
        self.classes, self.shape = metrics["classes"], tuple(metrics["shape"])
        self.mean, self.std = (np.array(metrics[name]) for name in ("mean", "std"))
        self.model = models.build(self.run, models.ModelArguments(self.shape, len(self.classes)))
        self.model.load_state_dict(torch.load(Path(folder, "weights.pt"), weights_only=True))
        self.model.eval()

    @torch.inference_mode()
    def scores(self, images):
        """What the network says of each class: (n, C, H, W) uint8 to (n, classes) float32.

        With as many threads as the run's own scores were made with they are the same, bit for bit.

        Raises:
            ValueError: the images have another shape.
        """
        if images.shape[1:] != self.shape or images.dtype != np.uint8:
            raise ValueError(
                f"found images of {images.dtype}, {images.shape[1:]}; the run was trained on "
                f"uint8, {self.shape}"
            )
        batches = ImageBatches(images, self.mean, self.std)
        each = evaluation.scores_of(self.model, batches, np.arange(len(images)))
        return torch.cat([scores for _, scores in each]).numpy()

    def probabilities(self, images):
        """The softmax of scores()."""
        return torch.from_numpy(self.scores(images)).softmax(dim=1).numpy()
