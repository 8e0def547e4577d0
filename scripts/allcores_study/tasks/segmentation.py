"""A class for each pixel of an image."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.tasks.base import WITHOUT_CLASS, Task, described

if TYPE_CHECKING:
    from torch import Tensor

TARGETS = "pixels"
LOSS = "CrossEntropyLoss"
LOSSES = ("CrossEntropyLoss", "DiceLoss")
WEIGHTED = ("CrossEntropyLoss",)
METRICS = ("mean_iou", "pixel_accuracy")
IS_SCALED = False
STRATIFIED = ""
PREDICTED = "each pixel is one of {names}"
BALANCED = "balanced"
# The module of the losses that are not torch's.
OWN_LOSSES = "_pixel_losses"


class Segmentation(Task):
    """Stored targets are masks, (N, H, W) uint8 class numbers.

    Models give (n, outputs, H, W), a score for each class and pixel.
    """

    target = "pixels"
    has_class_numbers = True
    measures = ("mean_iou", "mean_dice", "pixel_accuracy", "of_each")

    def output_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (self.outputs, *shape[1:])

    @classmethod
    def of_targets(cls, targets: np.ndarray) -> Segmentation:
        if targets.ndim != 3 or targets.dtype.kind not in "iub":
            raise ValueError(f"expected (N, H, W) class numbers; found {described(targets)}")
        most = int(targets[targets != WITHOUT_CLASS].max(initial=0))
        if not 0 < most < WITHOUT_CLASS:
            raise ValueError(
                f"expected at least two classes, from 0, or {WITHOUT_CLASS} where there is no "
                f"class; found {described(targets)}"
            )
        return cls(most + 1)

    @property
    def usual_names(self) -> list[str]:
        return [f"class {at}" for at in range(self.outputs)]

    def checked(self, targets: np.ndarray, are_all: bool = True) -> np.ndarray:
        targets = np.asarray(targets)
        if targets.ndim != 3 or targets.dtype.kind not in "iub":
            raise ValueError(f"expected (N, H, W) class numbers; found {described(targets)}")
        are_classes = ((targets >= 0) & (targets < self.outputs)) | (targets == WITHOUT_CLASS)
        others = np.argwhere(~are_classes)
        if len(others):
            place = tuple(others[0].tolist())
            raise ValueError(
                f"found {targets[place]} in the mask of sample {place[0]}; expected 0 to "
                f"{self.outputs - 1}, or {WITHOUT_CLASS} where there is no class"
            )
        return targets.astype(np.uint8)

    def scaled(self, targets: np.ndarray, scaling: Any) -> np.ndarray:
        return targets

    def notes(self, targets: np.ndarray, names: list[str]) -> Iterator[str]:
        """Yield sentences on what the masks lack.

        Raises:
            ValueError: there are only the first class and pixels without a class.
        """
        counts = np.bincount(targets.ravel(), minlength=WITHOUT_CLASS + 1)
        if counts[WITHOUT_CLASS] and counts[0] + counts[WITHOUT_CLASS] == targets.size:
            raise ValueError(
                f"all pixels are 0 or {WITHOUT_CLASS}, and {WITHOUT_CLASS} is for those without a "
                f"class; expected 1 where a pixel is of {names[1]}"
            )
        absent = [name for name, count in zip(names, counts, strict=False) if not count]
        if absent:
            yield f"no pixel of any mask is of {', '.join(absent)}"
        if counts[WITHOUT_CLASS]:
            share = counts[WITHOUT_CLASS] / targets.size
            yield f"{share:.1%} of the pixels have no class: their value is {WITHOUT_CLASS}"

    def loss(
        self, name: str, make: Callable[..., Any], options: dict[str, Any], targets: np.ndarray
    ) -> Callable[[Tensor, Tensor], Tensor]:
        from allcores_study.tasks._pixel_losses import cross_entropy

        if name != LOSS:
            return make(**options)
        weight = self._weights(targets) if options.get("weight") == BALANCED else None
        others = {key: value for key, value in options.items() if key != "weight"}
        return lambda scores, targets: cross_entropy(scores, targets, weight, **others)

    def _weights(self, targets: np.ndarray) -> Tensor:
        """Return the class weights that make all classes count the same, (classes,) float32."""
        import torch

        counts = np.bincount(targets[targets != WITHOUT_CLASS], minlength=self.outputs)
        weights = counts.sum() / (self.outputs * np.maximum(counts, 1))
        return torch.tensor(weights, dtype=torch.float32)

    def kept(self, scores: Tensor) -> Tensor:
        """Return the predicted masks, (n, H, W) uint8."""
        return scores.argmax(dim=1).byte()

    def predictions(self, scores: np.ndarray, scaling: Any) -> dict[str, Any]:
        """Return `predicted`, the class of each pixel, (n, H * W) uint8, and `shape`, H and W."""
        count, *shape = scores.shape
        sizes = np.tile(np.array(shape, np.int32), (count, 1))
        return {"predicted": scores.reshape(count, math.prod(shape)), "shape": sizes}

    def measured(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
        """Return the measures; undefined values are None.

        "mean_iou" is the mean, over the classes that occur, of intersection over union: pixels that
        are of a class and predicted so, over pixels that are either. "mean_dice" is the same with
        twice the former over the sum of the pixels that are of the class and of those predicted so.
        "pixel_accuracy" is in 0..1. "of_each" lists "iou", "dice" and "accuracy" of each class.
        """
        true = true.reshape(predicted.shape)
        counts = confusion(true, predicted, self.outputs)
        hits, have, told = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
        each = [
            {
                "iou": _share(hit, n + m - hit),
                "dice": _share(2 * hit, n + m),
                "accuracy": _share(hit, n),
            }
            for hit, n, m in zip(hits.tolist(), have.tolist(), told.tolist(), strict=True)
        ]
        return {
            "mean_iou": _mean([of_one["iou"] for of_one in each]),
            "mean_dice": _mean([of_one["dice"] for of_one in each]),
            "pixel_accuracy": _share(int(hits.sum()), int(counts.sum())),
            "of_each": each,
        }

    def in_words(self, measures: dict[str, Any]) -> str:
        value = measures["mean_iou"]
        return "mean IoU " + ("undefined" if value is None else f"{value:.2%}")

    def answers(self, scores: Tensor, scaling: Any) -> Tensor:
        """Return 1 for the class of a pixel, else 0, (n, outputs, H, W) float32.

        The mean over models is the share of models that predict that class.
        """
        import torch

        return (scores[:, None] == torch.arange(self.outputs)[:, None, None]).float()

    def columns(self, answers: np.ndarray, names: list[str] | None) -> dict[str, np.ndarray]:
        """Return the most frequent class, the share of each, and `masks`, (n, H, W) uint8."""
        assert names is not None
        masks = answers.argmax(axis=1).astype(np.uint8)
        flat = masks.reshape(len(masks), math.prod(masks.shape[1:]))
        shares = np.stack([(flat == at).mean(axis=1) for at in range(self.outputs)], axis=1)
        columns = {"predicted": np.array(names, dtype=object)[shares.argmax(axis=1)]}
        columns |= {f"share_{name}": shares[:, at] for at, name in enumerate(names)}
        return columns | {"masks": masks}

    def stored_examples(self, count: int, shape: Sequence[int]) -> np.ndarray:
        random = np.random.default_rng(0)
        return random.integers(0, self.outputs, (count, *shape[1:]), dtype=np.uint8)


def confusion(true: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Return (classes, classes) counts of pixels, true by predicted class; arrays of one shape."""
    has_class = true != WITHOUT_CLASS
    pairs = true[has_class].astype(np.int64) * classes + predicted[has_class]
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def _mean(shares: list[float | None]) -> float | None:
    """Return the mean of the shares that are defined."""
    defined = [share for share in shares if share is not None]
    return float(np.mean(defined)) if defined else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
