"""What is known of a dataset without opening it: how many samples, of which shape and targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.data import class_values
from allcores_study.data.tokens import Vocabulary

if TYPE_CHECKING:
    from allcores_study.data.storage import Samples


@dataclass(frozen=True)
class Facts:
    """What is known of a dataset; the content of its dataset.json.

    Attributes:
        train, test: number of samples in the training part and in the dataset's own test set.
        shape: of a sample; (C, H, W) for an image.
        dtype: of the inputs.
        task, outputs: what is predicted, and the number of a model's outputs; see Task.
        names: of the classes, labels or numbers; None: there is one number, or they are not known.
        class_counts: number of samples of each class in the training part; None: no classes.
        class_values: what class_values.restored() makes the user's own classes of; None: there are
            no classes.
        groups: number of groups in the training part; None: no groups.
        times: number of different times in the training part; None: it has no order.
        own_folds: number of samples in each fold that the data bring; None: they bring none.
        group_names, columns: as in Samples.
        known_tokens: what Vocabulary.to_json() returns; None: the inputs are not tokens.
        notes: sentences on what may be unintended.
    """

    train: int
    test: int
    shape: tuple[int, ...]
    dtype: str = "uint8"
    task: str = "classification"
    outputs: int = 1
    names: list[str] | None = None
    class_counts: list[int] | None = None
    groups: int | None = None
    times: int | None = None
    own_folds: list[int] | None = None
    group_names: list[str] | None = None
    columns: list[dict[str, Any]] | None = None
    known_tokens: dict[str, Any] | None = None
    class_values: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, samples: Samples) -> Facts:
        """Return the Facts of Samples, of which no chunk is read.

        Raises:
            ValueError: the targets are no classes.
        """
        counts = own = None
        names = None if samples.names is None else list(map(str, samples.names))
        if samples.task.name == "classification":
            of_training = samples.task.checked(samples.targets)[: samples.train]
            counts = np.bincount(of_training, minlength=samples.task.outputs).tolist()
            are_numbers = names in (None, samples.task.usual_names)
            usual = np.arange(samples.task.outputs) if are_numbers else names
            own = class_values.described(usual if samples.classes is None else samples.classes)
        return cls(
            train=samples.train,
            test=samples.shape[0] - samples.train,
            shape=tuple(samples.shape[1:]),
            dtype=np.dtype(samples.dtype).name,
            task=samples.task.name,
            outputs=samples.task.outputs,
            names=names,
            class_counts=counts,
            groups=None if samples.groups is None else len(np.unique(samples.groups)),
            times=None if samples.times is None else len(np.unique(samples.times)),
            own_folds=None
            if samples.folds is None
            else np.bincount(samples.folds[samples.folds >= 0]).tolist(),
            group_names=samples.group_names,
            columns=samples.columns,
            known_tokens=None if samples.vocabulary is None else samples.vocabulary.to_json(),
            class_values=own,
            notes=(*samples.notes, *_notes_on_groups(samples)),
        )

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Facts:
        """Return the Facts that dataclasses.asdict() described.

        Raises:
            ValueError: another version described them.
        """
        try:
            return cls(**values | {name: tuple(values[name]) for name in ("shape", "notes")})
        except (TypeError, KeyError) as error:
            raise ValueError(f"the facts of a dataset are of another version: {error}") from None

    @property
    def count(self) -> int:
        return self.train + self.test

    @property
    def classes(self) -> list[str] | None:
        """The names of the classes; None: there are none, or their names are not known."""
        return None if self.class_counts is None else self.names

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The tokens that occur; None: the inputs are not tokens."""
        return Vocabulary.from_json(self.known_tokens)

    @property
    def most_tokens(self) -> int | None:
        """The largest number of tokens that a network can know; None: the inputs are not tokens."""
        return self.vocabulary and self.vocabulary.most_known  # type: ignore[return-value]

    @property
    def count_columns(self) -> int:
        """The number of columns of a table, each with all of its categories; 0: it is no table."""
        return len({column["name"] for column in self.columns or ()})

    @property
    def are_numbers(self) -> bool:
        """Whether the classes look like numbers to be predicted: fractions, or very many."""
        try:
            numbers = [float(name) for name in self.classes or ["none"]]
        except ValueError:
            return False
        return not all(map(float.is_integer, numbers)) or len(numbers) > self.train / 4


def _notes_on_groups(samples: Samples) -> Iterator[str]:
    if samples.groups is not None and samples.folds is not None:
        parts = np.unique(np.stack([samples.groups, samples.folds]), axis=1)
        if split := parts.shape[1] - len(np.unique(samples.groups)):
            yield f"the folds that the data bring cut groups apart, {split} times"
    if samples.groups is None or samples.task.name != "classification":
        return
    targets = samples.targets[: samples.train]
    pairs = len(np.unique(np.stack([samples.groups, targets]), axis=1).T)
    if pairs == len(np.unique(samples.groups)) == len(np.unique(targets)):
        yield "the groups are the classes, so no held-out class is trained on"
