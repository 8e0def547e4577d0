"""A training whose loss is no longer a finite number."""

from __future__ import annotations

import math
from typing import Any


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


def at_last(measures: dict[str, Any], epochs: list[dict[str, Any]]) -> DivergedError | None:
    """Return a DivergedError if the loss is not finite after the last update, else None.

    Only scoring shows that.
    """
    if math.isfinite(measures["loss"]):
        return None
    return DivergedError(len(epochs), None, epochs[-1]["lr"])
