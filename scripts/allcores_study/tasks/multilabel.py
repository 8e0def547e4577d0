"""Several labels for each sample, each of which holds or does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.tasks.base import Task, described, of_samples
from allcores_study.tasks.classification import LEAST

if TYPE_CHECKING:
    from torch import Tensor

TARGETS = "labels"
LOSS = "BCEWithLogitsLoss"
LOSSES = ("BCEWithLogitsLoss", "MultiLabelSoftMarginLoss")
WEIGHTED = ()
METRICS = ("micro_f1", "macro_f1", "mean_average_precision")
IS_SCALED = False
STRATIFIED = "iteratively stratified (Sechidis, Tsoumakas and Vlahavas 2011) "


class Multilabel(Task):
    """Stored targets are (N, outputs) int8 zeros and ones.

    A label is predicted to hold if its score is above 0, or its probability above a half.
    """

    measures = ("micro_f1", "macro_f1", "of_each")

    @classmethod
    def of_targets(cls, targets: np.ndarray) -> Multilabel:
        if targets.ndim != 2 or targets.shape[1] < 2:
            raise ValueError(
                f"expected (N, T) zeros and ones of T > 1 labels; found {described(targets)}"
            )
        return cls(targets.shape[1])

    @property
    def usual_names(self) -> list[str]:
        return [f"label {at + 1}" for at in range(self.outputs)]

    def checked(self, targets: np.ndarray, are_all: bool = True) -> np.ndarray:
        targets = np.asarray(targets)
        if targets.shape[1:] != (self.outputs,):
            raise ValueError(f"expected (N, {self.outputs}) labels; found {targets.shape}")
        others = np.argwhere(~np.isin(targets, (0, 1)))
        if len(others):
            place = tuple(others[0].tolist())
            raise ValueError(f"expected zeros and ones; found {targets[place]} in row {place[0]}")
        sums = targets.astype(np.int64).sum(axis=0)
        if are_all and len(targets) > 1 and ((sums == 0) | (sums == len(targets))).any():
            raise ValueError("a label holds for all samples or for none; expected both")
        return targets.astype(np.int8)

    def scaled(self, targets: np.ndarray, scaling: Any) -> np.ndarray:
        return targets.astype(np.float32)

    def loss(
        self, name: str, make: Callable[..., Any], options: dict[str, Any], targets: np.ndarray
    ) -> Callable[[Tensor, Tensor], Tensor]:
        return make(**options)

    def loss_of_each(
        self,
        name: str,
        make: Callable[..., Any],
        options: dict[str, Any],
        targets: list[np.ndarray],
    ) -> Callable[[Tensor, Tensor], Tensor]:
        each = make(**options, reduction="none")

        return lambda scores, targets: of_samples(each(scores, targets))

    def scores(self, outputs: Tensor) -> Tensor:
        if not self.gives_probabilities:
            return outputs
        outputs = outputs.double().clamp(LEAST, 1 - LEAST)
        return outputs.log() - (-outputs).log1p()

    def predictions(self, scores: np.ndarray, scaling: Any) -> dict[str, Any]:
        """Return `predicted`, int8, and `scores`, float32, or `probabilities`, of each label.

        Probabilities keep the precision in which the model gave them.
        """
        if self.gives_probabilities:
            return {"predicted": (scores > 0.5).astype(np.int8), "probabilities": scores}
        return {"predicted": (scores > 0).astype(np.int8), "scores": scores}

    def measured(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
        """Return {"micro_f1", "macro_f1", "of_each"}; undefined values are 0.

        "micro_f1" is that of all labels together, "macro_f1" the mean over labels, both in 0..1.
        "of_each" lists "f1", "precision" and "recall" of each label.
        """
        true, predicted = true.astype(bool), predicted.astype(bool)
        hits = (true & predicted).sum(axis=0)
        told, have = predicted.sum(axis=0), true.sum(axis=0)
        each = [
            {"f1": _share(2 * hit, n + m), "precision": _share(hit, n), "recall": _share(hit, m)}
            for hit, n, m in zip(hits.tolist(), told.tolist(), have.tolist(), strict=True)
        ]
        return {
            "micro_f1": _share(2 * int(hits.sum()), int((told + have).sum())),
            "macro_f1": float(np.mean([measures["f1"] for measures in each])),
            "of_each": each,
        }

    def in_words(self, measures: dict[str, Any]) -> str:
        return f"micro F1 {measures['micro_f1']:.2%}"

    def answers(self, scores: Tensor, scaling: Any) -> Tensor:
        """Return probabilities: those of the model, or the sigmoid of the scores."""
        return scores if self.gives_probabilities else scores.sigmoid()

    def columns(self, answers: np.ndarray, names: list[str] | None) -> dict[str, np.ndarray]:
        assert names is not None
        predicted = (answers > 0.5).astype(np.int8)
        columns = {f"predicted_{name}": predicted[:, at] for at, name in enumerate(names)}
        return columns | {f"p_{name}": answers[:, at] for at, name in enumerate(names)}

    def stored_examples(self, count: int, shape: Sequence[int]) -> np.ndarray:
        return (np.add.outer(np.arange(count), np.arange(self.outputs)) % 2).astype(np.int8)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
