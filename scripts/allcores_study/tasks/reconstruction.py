"""The input itself: a network has to reproduce its input through a bottleneck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.tasks.base import Task

if TYPE_CHECKING:
    from torch import Tensor

TARGETS = "inputs"
LOSS = "MSELoss"
LOSSES = ("HuberLoss", "L1Loss", "MSELoss", "SmoothL1Loss")
WEIGHTED = ()
METRICS = ("mse",)
IS_SCALED = False
STRATIFIED = ""
PREDICTED = "the input itself is predicted"
SHOWN = 4  # samples whose outputs are kept, of the best and of the worst


class Reconstruction(Task):
    """Stored targets are zeros, (N,) float64: the error of a perfect network.

    Models give as many numbers as an input has, which are compared with the scaled input.
    """

    target = "inputs"
    measures = ("mse",)

    def output_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(shape)

    def checked(self, targets: np.ndarray) -> np.ndarray:
        return np.zeros(len(targets))

    def scaled(self, targets: np.ndarray, scaling: Any) -> np.ndarray:
        return targets

    def loss(
        self, name: str, make: Callable[..., Any], options: dict[str, Any], targets: np.ndarray
    ) -> Callable[[Tensor, Tensor], Tensor]:
        loss = make(**options)
        return lambda scores, targets: loss(scores.reshape(targets.shape), targets)

    def kept(self, scores: Tensor, inputs: Tensor) -> Tensor:
        """Return outputs and inputs, (n, 2, ...) float32."""
        import torch

        return torch.stack([scores.reshape(inputs.shape), inputs], dim=1)

    def predictions(self, scores: np.ndarray, scaling: Any) -> dict[str, Any]:
        """Return `predicted`, `output`, `input` and `shape`.

        `predicted` is the mean squared error of each sample, float64. `output` and `input` are
        those of the best and the worst samples, scaled, and empty for the others. `shape` is that
        of a sample.
        """
        import torch

        errors = self.answers(torch.from_numpy(scores), scaling)[:, 0].numpy()
        order = np.argsort(errors, kind="stable")
        shown = np.unique([*order[:SHOWN], *order[-SHOWN:]]).astype(np.int64)
        sizes = np.zeros(len(errors), np.int32)
        sizes[shown] = int(np.prod(scores.shape[2:]))
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        return {
            "predicted": errors,
            "output": (ends, scores[shown, 0].ravel()),
            "input": (ends, scores[shown, 1].ravel()),
            "shape": np.tile(np.array(scores.shape[2:], np.int32), (len(errors), 1)),
        }

    def measured(self, true: np.ndarray | None, predicted: np.ndarray) -> dict[str, Any]:
        """Return {"mse": the mean over samples of the mean squared error of the scaled input}."""
        return {"mse": float(np.mean(predicted))}

    def in_words(self, measures: dict[str, Any]) -> str:
        return f"mean squared error {measures['mse']:.4g} of scaled inputs"

    def answers(self, scores: Tensor, scaling: Any) -> Tensor:
        """Return the mean squared error of each sample, (n, 1) float64."""
        differences = scores[:, 0].double() - scores[:, 1]
        return differences.flatten(1).square().mean(dim=1, keepdim=True)

    def told(
        self, answers: np.ndarray, true: np.ndarray | None, names: list[str] | None
    ) -> tuple[dict[str, np.ndarray], str]:
        columns = {"predicted": answers[:, 0]}
        return columns, self.in_words(self.measured(None, answers[:, 0]))

    def examples(self, count: int, shape: Sequence[int]) -> Tensor:
        import torch

        return torch.randn(count, *shape)

    def stored_examples(self, count: int, shape: Sequence[int]) -> np.ndarray:
        return np.zeros(count)
