"""One of several classes for each sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.tasks.base import Task, described

if TYPE_CHECKING:
    from torch import Tensor

TARGETS = "classes"
LOSS = "CrossEntropyLoss"
# These take scores (n, classes) and class numbers (n,).
WEIGHTED = ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss")
# The others take scores and as many zeros and ones.
LOSSES = (
    "CrossEntropyLoss",
    "NLLLoss",
    "MultiMarginLoss",
    "HuberLoss",
    "L1Loss",
    "MSELoss",
    "SmoothL1Loss",
    "BCEWithLogitsLoss",
    "MultiLabelSoftMarginLoss",
)
METRICS = ("accuracy",)
IS_SCALED = False
STRATIFIED = "stratified "
# The value of a loss's option `weight` that makes rare classes count as much as frequent ones. A
# sample's weight is (number of samples) / (number of classes * number of samples of its class), as
# in scikit-learn.
BALANCED = "balanced"
# The smallest probability whose logarithm the loss takes.
LEAST = float(np.finfo(np.float64).eps)


class Classification(Task):
    """Stored targets are class numbers, int64; models have an output for each class."""

    has_class_numbers = True
    measures = ("accuracy", "confusion")

    @classmethod
    def of_targets(cls, targets: np.ndarray) -> Classification:
        if targets.ndim != 1 or targets.dtype.kind not in "iu":
            raise ValueError(f"expected (N,) integers from 0; found {described(targets)}")
        classes = np.unique(targets)
        missing = next((k for k, label in enumerate(classes) if k != label), len(classes))
        if len(classes) < 2 or missing < len(classes):
            raise ValueError(
                "expected 0, 1, ... with a sample for each, and at least two; found "
                f"{len(classes)} different ones up to {classes.max(initial=0)}, without {missing}"
            )
        return cls(len(classes))

    @property
    def usual_names(self) -> list[str]:
        return list(map(str, range(self.outputs)))

    def checked(self, targets: np.ndarray, are_all: bool = True) -> np.ndarray:
        targets = np.asarray(targets)
        is_right = targets.ndim == 1 and targets.dtype.kind in "iu" and targets.size
        if not is_right or targets.min() < 0 or targets.max() >= self.outputs:
            expected = f"(N,) integers from 0 to {self.outputs - 1}"
            raise ValueError(f"expected labels, {expected}; found {described(targets)}")
        return targets.astype(np.int64)

    def scaled(self, targets: np.ndarray, scaling: Any) -> np.ndarray:
        return targets

    def loss(
        self, name: str, make: Callable[..., Any], options: dict[str, Any], targets: np.ndarray
    ) -> Callable[[Tensor, Tensor], Tensor]:
        import torch.nn.functional as F

        if options.get("weight") == BALANCED:
            weight = self._weights(targets)
            # torch divides by the sum of the weights in a batch, which differs between the workers'
            # parts.
            each = make(**options | {"weight": weight}, reduction="none")
            return lambda scores, targets: each(scores, targets).mean()
        loss = make(**options)
        if name in WEIGHTED or ":" in name:  # the user's own also gets class numbers
            return loss
        return lambda scores, targets: loss(
            scores, F.one_hot(targets, self.outputs).to(scores.dtype)
        )

    def loss_of_each(
        self,
        name: str,
        make: Callable[..., Any],
        options: dict[str, Any],
        targets: list[np.ndarray],
    ) -> Callable[[Tensor, Tensor], Tensor] | None:
        import torch
        import torch.nn.functional as F

        if name != LOSS or set(options) - {"weight"}:
            return None
        weights = None
        if options.get("weight") == BALANCED:
            weights = torch.stack([self._weights(labels) for labels in targets])

        def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
            shares = F.log_softmax(scores, dim=2)
            losses = -shares.gather(2, targets.unsqueeze(2)).squeeze(2)
            return losses if weights is None else losses * weights.gather(1, targets)

        return cross_entropy

    def _weights(self, targets: np.ndarray) -> Tensor:
        """Return the class weights that make all classes count the same, (classes,) float32."""
        import torch

        counts = torch.bincount(torch.from_numpy(targets), minlength=self.outputs)
        return len(targets) / (self.outputs * counts.clamp(min=1))

    def scores(self, outputs: Tensor) -> Tensor:
        if not self.gives_probabilities:
            return outputs
        # A probability of 0 counts as LEAST, as in sklearn.metrics.log_loss().
        return outputs.double().clamp(min=LEAST).log()

    def predictions(self, scores: np.ndarray, scaling: Any) -> dict[str, Any]:
        """Return `predicted`, int64 class numbers, and `scores`, float32, or `probabilities`.

        Probabilities keep the precision in which the model gave them: rounding would make ties.
        """
        name = "probabilities" if self.gives_probabilities else "scores"
        return {"predicted": scores.argmax(axis=1), name: scores}

    def measured(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
        """Return {"accuracy": share in 0..1, "confusion": counts, true class by predicted class}.

        The counts are (classes, classes) nested lists.
        """
        pairs = np.bincount(true * self.outputs + predicted, minlength=self.outputs**2)
        return {
            "accuracy": float(np.mean(true == predicted)),
            "confusion": pairs.reshape(self.outputs, self.outputs).tolist(),
        }

    def in_words(self, measures: dict[str, Any]) -> str:
        return f"accuracy {measures['accuracy']:.2%}"

    def answers(self, scores: Tensor, scaling: Any) -> Tensor:
        """Return probabilities: those of the model, or the softmax of the scores."""
        return scores if self.gives_probabilities else scores.softmax(dim=1)

    def columns(self, answers: np.ndarray, names: list[str] | None) -> dict[str, np.ndarray]:
        assert names is not None
        predicted = np.array(names, dtype=object)[answers.argmax(axis=1)]
        return {"predicted": predicted} | {
            f"p_{name}": answers[:, at] for at, name in enumerate(names)
        }

    def stored_examples(self, count: int, shape: Sequence[int]) -> np.ndarray:
        return np.arange(count) % self.outputs
