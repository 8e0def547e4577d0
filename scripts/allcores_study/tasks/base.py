"""The contract of a task: what a model is trained to predict, and how good a prediction is.

A task's file begins with constants, which a config is checked by without importing the file:

    TARGETS: what the targets are, in messages: "classes".
    LOSS, LOSSES: the default loss, and all that suit; names of torch's.
    WEIGHTED: those of LOSSES that take `weight: balanced`.
    METRICS: of a study that lists none; the first is the one that curves show.
    IS_SCALED: whether targets are scaled for training.
    STRATIFIED: how folds get equal parts of each class, in words: "stratified "; "": they do not.
    PREDICTED: the prediction in words, with {names} of the outputs; optional.

Few lines outside of its file ask which task it is; they ask the Task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from allcores_study.config import registry

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor
    from torch.nn import Module

# In a mask, the number of pixels that have no class: they count neither in losses nor in scores.
WITHOUT_CLASS = 255


@dataclass(frozen=True)
class Task:
    """What a model predicts for each sample.

    Torch is imported where it is needed: folds, plans and reports do without.

    Attributes:
        outputs: number of a model's outputs per sample, as many as there are classes or numbers.
        gives_probabilities: whether the model gives probabilities in place of scores, as estimators
            do.
    """

    outputs: int
    gives_probabilities: bool = False

    @property
    def name(self) -> str:
        """By which named() finds it."""
        return type(self).__module__.rpartition(".")[2]

    # The name of the targets in files of arrays.
    array = "targets"
    # The end of the message on true answers that is_scored() refuses.
    unfit = "do not fit"
    # What a target is: "fixed", whatever is done to the input; "pixels" that move with those of the
    # image; the "inputs" themselves. See data/targets.py.
    target = "fixed"
    # The names of what measured() returns; the first is shown of each epoch.
    measures: ClassVar[tuple[str, ...]] = ()

    def given_by(self, model: Module) -> Task:
        """This task for the outputs of a model."""
        return replace(self, gives_probabilities=getattr(model, "gives_probabilities", False))

    def scores(self, outputs: Tensor) -> Tensor:
        """What the loss takes, of the outputs of a model."""
        return outputs

    def output_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a model's output for a sample of a shape."""
        return (self.outputs,)

    def target_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a stored target for a sample of a shape."""
        return ()

    def checked(self, targets: np.ndarray) -> np.ndarray:
        """The targets of all samples with the dtype in which they are stored.

        Raises:
            ValueError: they cannot be predicted.
        """
        raise NotImplementedError

    def scaling(self, targets: np.ndarray) -> tuple[float | np.ndarray, float | np.ndarray]:
        """(centre, spread) by which the targets are scaled for training.

        Args:
            targets: of the training samples, as stored.
        """
        return 0.0, 1.0

    def scaled(self, targets: np.ndarray, scaling: Any) -> np.ndarray:
        """Stored targets as the loss takes them: an array.

        Args:
            scaling: data.scaling.Scaling, which has the centre and the spread.
        """
        raise NotImplementedError

    def loss(
        self, name: str, make: Callable[..., Any], options: dict[str, Any], targets: np.ndarray
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """A function of scores (n, outputs) float32 and scaled targets, giving the mean loss.

        Args:
            name, make: of one of LOSSES: its name, and torch's class.
            options: of that class.
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
        """The same for K networks at once: a function of scores (K, B, outputs) and scaled targets
        of (K, B) samples, giving each one's loss, (K, B); None: this loss cannot.

        Args:
            targets: a list of those of the training samples of each network.
        """
        return None

    def kept(self, scores: Tensor, inputs: Tensor) -> np.ndarray:
        """What of the scores of a batch is kept for what follows, an array (n, ...).

        Args:
            scores: of a model, (n, *output_shape) float32, a tensor.
            inputs: that it got, (n, ...).
        """
        return scores.numpy()

    def predictions(self, scores: np.ndarray, scaling: Any) -> dict[str, Any]:
        """Name of a column -> what is kept of the predictions, an array of n rows each.

        `predicted` is one of them; further ones have several values in each row, or as many as the
        differences of (n + 1) ends, which are then given with all values: (ends, values).

        Args:
            scores: of kept().
        """
        raise NotImplementedError

    def measured(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
        """Name of each of measures -> how good predictions are.

        Args:
            true: targets as stored.
            predicted: the column of predictions().
        """
        raise NotImplementedError

    def is_scored(self, true: np.ndarray) -> bool:
        """Whether numbers that are given as true ones can be: predictions are scored with them."""
        return True

    def in_words(self, measures: dict[str, Any]) -> str:
        """The main measure as text: "accuracy 96.33%"."""
        raise NotImplementedError

    def answers(self, scores: np.ndarray, scaling: Any) -> np.ndarray:
        """What users get for a sample: (n, outputs), which several models' means make sense of."""
        raise NotImplementedError

    def told(
        self, answers: np.ndarray, true: np.ndarray | None, names: list[str] | None
    ) -> tuple[dict[str, np.ndarray], str]:
        """(name -> column of a table of predictions, the score in words).

        Args:
            answers: (n, outputs).
            true: targets as stored; None: unknown, and the score is "".
            names: of the outputs; None: there is one.
        """
        raise NotImplementedError

    def arrays(self, answers: np.ndarray) -> dict[str, np.ndarray]:
        """Name -> array that is saved beside a table of predictions."""
        return {}

    def examples(self, count: int, shape: Sequence[int]) -> Tensor:
        """So many random targets as the loss takes them, a tensor.

        Args:
            shape: of a sample.
        """
        raise NotImplementedError

    def stored_examples(self, count: int, shape: Sequence[int]) -> np.ndarray:
        """So many targets as stored, an array."""
        raise NotImplementedError

    def class_names(self) -> list[int] | None:
        """Names of that many classes; None: the targets are no classes."""
        return None


def of_samples(losses: Tensor) -> Tensor:
    """The loss of each sample, (K, B), of losses (K, B) or, of T outputs each, (K, B, T)."""
    return losses if losses.dim() == 2 else losses.mean(dim=2)


def named(name: str, outputs: int) -> Task:
    """The Task of that name."""
    return registry.tasks()[name].load()(outputs)


def usual(classes: int | None, numbers: int = 1) -> Task:
    """The Task of data that name none.

    Args:
        classes: how many there are; None: the targets are numbers.
        numbers: how many there are of each sample.
    """
    return named("regression", numbers) if classes is None else named("classification", classes)
