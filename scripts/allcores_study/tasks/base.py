"""The contract of a task: what a model is trained to predict, and how good a prediction is.

A task's file begins with constants, by which a config is checked without importing the file:

    TARGETS: what the targets are, in messages: "classes".
    LOSS, LOSSES: the default loss, and all that suit; names of torch's.
    WEIGHTED: those of LOSSES that take `weight: balanced`.
    METRICS: the metrics of a study that lists none; curves show the first.
    IS_SCALED: whether targets are scaled for training.
    STRATIFIED: how folds get equal parts of each class, in words: "stratified "; "": they do not.
    PREDICTED: the prediction in words, with {names} of the outputs; optional.

Few lines outside its file ask which task it is; they ask the Task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from allcores_study.config import registry

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

# The value of mask pixels that have no class: they count neither in losses nor in scores.
WITHOUT_CLASS = 255


@dataclass(frozen=True)
class Task:
    """What a model predicts for each sample.

    torch is imported only where it is needed: folds, plans and reports do without it.

    Attributes:
        outputs: number of a model's outputs per sample: one for each class or number.
        gives_probabilities: whether the model gives probabilities instead of scores, as estimators
            do.
    """

    outputs: int
    gives_probabilities: bool = False

    @property
    def name(self) -> str:
        """The name by which named() finds it."""
        return type(self).__module__.rpartition(".")[2]

    # What a target is: "fixed", whatever is done to the input, or "pixels" that move with those of
    # the image. See data/targets.py.
    target = "fixed"
    # Whether the loss takes class numbers.
    has_class_numbers = False
    # The names of what measured() returns; the first is shown for each epoch.
    measures: ClassVar[tuple[str, ...]] = ()

    def given_by(self, model: Module) -> Task:
        """Return this task for the outputs of a model."""
        return replace(self, gives_probabilities=getattr(model, "gives_probabilities", False))

    def scores(self, outputs: Tensor) -> Tensor:
        """Return what the loss takes, from the outputs of a model."""
        return outputs

    def output_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a model's output for a sample of this shape."""
        return (self.outputs,)

    @classmethod
    def of_targets(cls, targets: np.ndarray) -> Task:
        """Return this task for targets of the training samples, as in a user's file of arrays.

        Raises:
            ValueError: their shape or type is another one, or a class is missing.
        """
        raise NotImplementedError

    @property
    def usual_names(self) -> list[str] | None:
        """The names of the outputs where the data have none; None: there is one number."""
        raise NotImplementedError

    def checked(self, targets: np.ndarray, are_all: bool = True) -> np.ndarray:
        """Return targets with the dtype in which they are stored.

        Args:
            are_all: whether these are more than a test set, so that they have to differ.

        Raises:
            ValueError: they cannot be predicted.
        """
        raise NotImplementedError

    def scaling(self, targets: np.ndarray) -> tuple[float | np.ndarray, float | np.ndarray]:
        """Return (centre, spread), by which the targets are scaled for training.

        Args:
            targets: of the training samples, as stored.
        """
        return 0.0, 1.0

    def scaled(self, targets: np.ndarray, scaling: Any) -> np.ndarray:
        """Return stored targets as the loss takes them.

        Args:
            scaling: a data.scaling.Scaling, which has the centre and the spread.
        """
        raise NotImplementedError

    def loss(
        self, name: str, make: Callable[..., Any], options: dict[str, Any], targets: np.ndarray
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the mean loss as a function of scores (n, outputs) float32 and scaled targets.

        Args:
            name, make: one of LOSSES: its name, and torch's class.
            options: options of that class.
            targets: of the training samples, as stored.
        """
        raise NotImplementedError

    def loss_of_each(
        self,
        name: str,
        make: Callable[..., Any],
        options: dict[str, Any],
        targets: list[np.ndarray],
    ) -> Callable[[Tensor, Tensor], Tensor] | None:
        """Return the same as loss() for K networks at once; None: this loss cannot.

        The function takes scores (K, B, outputs) and scaled targets of (K, B) samples, and gives
        the loss of each sample, (K, B).

        Args:
            targets: of the training samples of each network, as stored.
        """
        return None

    def kept(self, scores: Tensor) -> Tensor:
        """Return what is kept of scores, (n, *output_shape) float32: (n, ...)."""
        return scores

    def predictions(self, scores: np.ndarray, scaling: Any) -> dict[str, Any]:
        """Return name of a column -> what is kept of the predictions, an array of n rows each.

        `predicted` is one of them. The others have several values in each row.

        Args:
            scores: from kept(), as an array.
        """
        raise NotImplementedError

    def measured(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
        """Return name of each of `measures` -> how good the predictions are.

        Args:
            true: targets as stored.
            predicted: the column of predictions().
        """
        raise NotImplementedError

    def in_words(self, measures: dict[str, Any]) -> str:
        """Return the main measure as text: "accuracy 96.33%"."""
        raise NotImplementedError

    def answers(self, scores: Tensor, scaling: Any) -> Tensor:
        """Return what users get for each sample: (n, outputs), meaningful as a mean over models.

        It is a function of tensors alone, as torch.export has to trace it.

        Args:
            scores: from kept().
            scaling: see scaled().
        """
        raise NotImplementedError

    def columns(self, answers: np.ndarray, names: list[str] | None) -> dict[str, np.ndarray]:
        """Return name -> column of a table of predictions, (n,), or what no table can hold.

        Args:
            answers: (n, outputs).
            names: names of the outputs; None: there is one.
        """
        raise NotImplementedError

    def examples(self, count: int, shape: Sequence[int]) -> Tensor:
        """Return this many random targets as the loss takes them.

        Args:
            shape: shape of a sample.
        """
        import torch

        stored = torch.from_numpy(self.stored_examples(count, shape))
        return stored.long() if self.has_class_numbers else stored.float()

    def stored_examples(self, count: int, shape: Sequence[int]) -> np.ndarray:
        """Return this many targets as stored."""
        raise NotImplementedError


def described(targets: np.ndarray) -> str:
    """Return dtype, shape and ends of an array, in words."""
    has_ends = targets.size and targets.dtype.kind in "iuf"
    ends = f", from {targets.min():g} to {targets.max():g}" if has_ends else ""
    return f"{targets.dtype} {targets.shape}{ends}"


def of_samples(losses: Tensor) -> Tensor:
    """Return the loss of each sample, (K, B), from (K, B) or, with T outputs each, (K, B, T)."""
    return losses if losses.dim() == 2 else losses.mean(dim=2)


def probabilities(columns: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Return the probabilities of the classes or labels, (n, outputs); None: there are none.

    An estimator gives them itself. For a network they are the softmax of its scores, or the sigmoid
    for labels, in float64.

    Args:
        columns: of Task.predictions(), perhaps read from a file.
    """
    if "probabilities" in columns:
        return columns["probabilities"]
    if "scores" not in columns:
        return None
    scores = columns["scores"].astype(np.float64)
    if columns["predicted"].ndim == 2:  # labels
        return 1 / (1 + np.exp(-scores))
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def named(name: str, outputs: int) -> Task:
    """Return the Task of that name."""
    return registry.tasks()[name].load()(outputs)
