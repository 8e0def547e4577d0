"""How a run of several processes fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class RankFailedError(Exception):
    """A process of a run raised, was killed or hangs; the message gives its rank and the cause."""


class DivergedError(Exception):
    """The training loss is no longer a finite number.

    Attributes:
        epoch, step: counted from 1; step is None where only the finished epoch shows it.
        lr: learning rate of that step; without one, at the beginning of the epoch.
    """

    def __init__(self, epoch: int, step: int | None, lr: float) -> None:
        super().__init__(epoch, step, lr)
        self.epoch, self.step, self.lr = epoch, step, lr

    def __str__(self) -> str:
        step = "" if self.step is None else f", step {self.step}"
        return f"the loss is not finite in epoch {self.epoch}{step}, learning rate {self.lr:.3g}"


ERRORS = {error.__name__: error for error in (RankFailedError, DivergedError)}


def to_plain(error: BaseException) -> tuple[str, tuple[Any, ...]]:
    """Return one of the ERRORS as plain values."""
    return type(error).__name__, error.args


def from_plain(name: str, values: Any) -> Any:
    """Rebuild the error from what to_plain() returned."""
    return ERRORS[name](*values)


@dataclass(frozen=True)
class Report:
    """What a rank reports to its launcher when it ends.

    Attributes:
        when: seconds since 1970.
        cause: why it failed, a text or a DivergedError; None: it did not.
        value: what its function returned, if anything.
    """

    when: float
    cause: object
    value: object = None


@dataclass(frozen=True)
class Failure:
    """How a rank failed. A signal outweighs an error; of two errors, the earlier is the cause.

    Attributes:
        error: the RankFailedError or DivergedError.
        weight: 0: a signal killed it; 1: its node is gone, or the training diverged; 2: an error.
        when: seconds since 1970.
    """

    error: Exception
    weight: int
    when: float

    def plain(self) -> tuple[Any, ...]:
        """Return it as values that JSON can hold."""
        return to_plain(self.error), self.weight, self.when

    @classmethod
    def from_plain(cls, error: tuple[str, Any], weight: int, when: float) -> Failure:
        return cls(from_plain(*error), weight, when)
