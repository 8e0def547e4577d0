"""Facts about a dataset that are known before it is loaded, for checking configs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from allcores_study.data.folds import Assignable, assign
from allcores_study.tasks import base as tasks

if TYPE_CHECKING:
    from allcores_study.data.storage import Samples


@dataclass(frozen=True)
class Metadata:
    """Facts about a dataset that are known before it is loaded.

    Attributes:
        train, test: number of samples in the training part and in the dataset's own test set.
        smallest_class: number of samples of the training part's rarest class; None: the targets are
            numbers.
        shape: shape of a sample; (C, H, W) for an image.
        classes: number of classes; None: the targets are numbers.
        groups: number of groups in the training part; None: no groups.
        times: number of different times in the training part; None: it has no order.
        same_class_start: number of samples of one class at the start of an ordered training part.
        notes: sentences on what may be unintended.
        numbers: how many numbers are predicted for each sample, if the targets are not classes.
        own_task: the task, unless it is the usual one for classes or numbers.
        vocabulary: number of tokens; None: the inputs are not tokens.
        columns: number of columns of a table that are features; None: unknown, or it is no table.
        rarest: name of the rarest class.
        are_numbers: whether the names of the classes look like numbers to be predicted.
        assignable: that of the training part, if there are groups or times: they decide whether
            folds can be made.
        examples: what extremes() returns, if a smoke test needs real samples; None: any numbers of
            that shape will do.
    """

    train: int
    test: int
    smallest_class: int | None
    shape: tuple[int, ...]
    classes: int | None
    groups: int | None = None
    times: int | None = None
    same_class_start: int = 0
    notes: tuple[str, ...] = ()
    examples: list[Any] | None = None
    numbers: int = 1
    own_task: tasks.Task | None = None
    vocabulary: int | None = None
    columns: int | None = None
    rarest: str = ""
    are_numbers: bool = False
    assignable: Assignable | None = field(default=None, compare=False)

    @property
    def task(self) -> tasks.Task:
        """The task: own_task, or else the usual one for the classes or numbers."""
        return self.own_task or tasks.usual(self.classes, self.numbers)

    def unassignable(self, folds: int, inner: int, seed: int) -> str | None:
        """Return why samples with groups or times cannot be assigned to folds; None: they can.

        Args:
            folds, inner, seed: as in folds.assign().
        """
        assert self.assignable is not None
        try:
            assign(self.assignable, folds, inner, seed)
        except ValueError as error:
            return str(error)
        return None

    @classmethod
    def of(cls, samples: Samples) -> Metadata:
        """Return the Metadata of Samples."""
        counts = None
        if samples.classes is not None:
            counts = np.bincount(samples.targets[: samples.train], minlength=len(samples.classes))
        return cls(
            train=samples.train,
            test=samples.shape[0] - samples.train,
            smallest_class=None if counts is None else int(counts.min()),
            rarest="" if counts is None else str(samples.classes[counts.argmin()]),  # type: ignore[index]
            are_numbers=counts is not None and _look_like_numbers(samples.classes, samples.train),  # type: ignore[arg-type]
            assignable=None
            if samples.groups is None and samples.times is None
            else Assignable(samples.targets[: samples.train], samples.groups, samples.times),
            shape=tuple(samples.shape[1:]),
            classes=None if counts is None else len(counts),
            groups=None if samples.groups is None else len(np.unique(samples.groups)),
            times=None if samples.times is None else len(np.unique(samples.times)),
            same_class_start=_same_class_start(samples),
            notes=tuple(samples.notes),
            numbers=len(samples.output_names or [None]),
            own_task=samples.own_task,
            vocabulary=samples.vocabulary and samples.vocabulary.most_known,  # type: ignore[arg-type]
            columns=samples.columns and len({column["name"] for column in samples.columns}),  # type: ignore[arg-type]
        )


def _look_like_numbers(classes: list[Any], count: int) -> bool:
    """Return whether the class names are numbers, some of them fractions or very many of them."""
    try:
        numbers = [float(name) for name in classes]
    except ValueError:
        return False
    return not all(number.is_integer() for number in numbers) or len(numbers) > count / 4


def notes_on_groups(
    groups: np.ndarray | None, targets: np.ndarray, classes: list[Any] | bool | None, **_: Any
) -> Iterator[str]:
    """Yield a sentence if the groups are the classes; the arguments are fields of Samples."""
    if groups is None or classes is None:
        return
    pairs = {(group, target) for group, target in zip(groups, targets, strict=True)}
    if len(pairs) == len(set(groups)) == len(set(targets)):
        yield "the groups are the classes, so no held-out class is trained on"


def _same_class_start(samples: Samples) -> int:
    """Return Metadata.same_class_start of Samples."""
    if samples.times is None or samples.classes is None:
        return 0
    in_order = np.asarray(samples.targets)[np.argsort(samples.times, kind="stable")]
    others = np.flatnonzero(in_order != in_order[0])
    return int(others[0]) if len(others) else len(in_order)
