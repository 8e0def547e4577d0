"""Learning-rate schedules: torch's own, stepped once per batch.

Each function wraps an optimizer in a scheduler of torch.optim.lr_scheduler; total_steps is the
number of batches in the whole training. Every worker steps its own copy and gets the same rates.
During warm_up, a fraction of the training, the rate rises to the start of the schedule, which then
takes the remaining steps (Goyal et al. 2017, "Accurate, Large Minibatch SGD").
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import lr_scheduler

from allcores_study.config import registry

if TYPE_CHECKING:
    from allcores_study.config.run import Entry

# Range of each option: least integer, least number, or [least, largest] of either; for a list, the
# range of each element.
ALLOWED = {
    "floor": 0.0,
    "cycles": [1, 1000],
    "growth": [1, 100],
    "milestones": [0.0, 1.0],
    "gamma": [0.0, 1.0],
    "factor": [0.0, 1.0],
    "patience": 0,
    "threshold": 0.0,
    "warm_up": [0.0, 1.0],
}


def constant(
    optimizer: torch.optim.Optimizer, total_steps: int, warm_up: float = 0.0
) -> lr_scheduler.LRScheduler:
    """Keep the learning rate constant."""

    def build(steps: int) -> lr_scheduler.LRScheduler:
        return lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)

    return _after_warm_up(optimizer, total_steps, warm_up, build)


def cosine(
    optimizer: torch.optim.Optimizer, total_steps: int, floor: float = 0.0, warm_up: float = 0.0
) -> lr_scheduler.LRScheduler:
    """Lower the rate to floor along half a cosine (Loshchilov & Hutter 2017, SGDR)."""

    _check_floor(optimizer, floor)

    def build(steps: int) -> lr_scheduler.LRScheduler:
        return lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps, eta_min=floor)

    return _after_warm_up(optimizer, total_steps, warm_up, build)


def warm_restarts(
    optimizer: torch.optim.Optimizer,
    total_steps: int,
    cycles: int = 2,
    growth: int = 1,
    floor: float = 0.0,
    warm_up: float = 0.0,
) -> lr_scheduler.LRScheduler:
    """Lower the rate along `cycles` cosines, each `growth` times as long as the last (SGDR).

    The cycles fill the training; torch's version would cut off the last if they do not divide it.
    """
    _check_floor(optimizer, floor)
    lowest = floor / optimizer.param_groups[0]["lr"]

    def build(steps: int) -> lr_scheduler.LRScheduler:
        parts = list(itertools.accumulate(growth**cycle for cycle in range(cycles)))
        if steps < parts[-1]:
            raise ValueError(
                f"the first of {cycles} cycles would be shorter than one of {steps} steps; use "
                "fewer cycles, less growth or more epochs"
            )
        starts = [0, *(round(steps * part / parts[-1]) for part in parts)]

        def factor(step: int) -> float:
            cycle = min(bisect.bisect(starts, step), cycles)
            done = (step - starts[cycle - 1]) / (starts[cycle] - starts[cycle - 1])
            return lowest + (1 - lowest) * (1 + math.cos(math.pi * done)) / 2

        return lr_scheduler.LambdaLR(optimizer, factor)

    return _after_warm_up(optimizer, total_steps, warm_up, build)


def multistep(
    optimizer: torch.optim.Optimizer,
    total_steps: int,
    milestones: Sequence[float] = (0.5, 0.75),
    gamma: float = 0.1,
    warm_up: float = 0.0,
) -> lr_scheduler.LRScheduler:
    """Multiply by gamma at each milestone, a fraction in 0..1 of the training after warm_up."""

    def build(steps: int) -> lr_scheduler.LRScheduler:
        boundaries = [round(milestone * steps) for milestone in milestones]
        return lr_scheduler.MultiStepLR(optimizer, milestones=boundaries, gamma=gamma)

    return _after_warm_up(optimizer, total_steps, warm_up, build)


def plateau(
    optimizer: torch.optim.Optimizer,
    total_steps: int,
    factor: float = 0.1,
    patience: int = 2,
    threshold: float = 0.0001,
) -> lr_scheduler.ReduceLROnPlateau:
    """Multiply by factor when the training loss has not improved for over `patience` epochs."""
    return lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=factor, patience=patience, threshold=threshold
    )


def onecycle(
    optimizer: torch.optim.Optimizer, total_steps: int, warm_up: float = 0.3
) -> lr_scheduler.LRScheduler:
    """Rise to the learning rate in warm_up, then fall (Smith & Topin 2018, super-convergence)."""
    if not 1 < warm_up * total_steps <= total_steps - 1:
        raise ValueError(
            f"warm_up {warm_up:g} of {total_steps} steps; expected more than one step to rise, and "
            "at least one to fall"
        )
    return lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=optimizer.param_groups[0]["lr"],
        total_steps=total_steps,
        pct_start=warm_up,
        cycle_momentum=False,
    )


def _after_warm_up(
    optimizer: torch.optim.Optimizer,
    total_steps: int,
    warm_up: float,
    build: Callable[[int], lr_scheduler.LRScheduler],
) -> lr_scheduler.LRScheduler:
    """Return a linear rise, then the schedule of build(steps); without warm_up only the latter."""
    steps = round(warm_up * total_steps)
    if steps == 0:
        return build(total_steps)
    if steps == total_steps:
        raise ValueError(f"warm_up {warm_up:g} of {total_steps} steps leaves none for the schedule")
    rise = lr_scheduler.LinearLR(optimizer, start_factor=1 / (steps + 1), total_iters=steps)
    parts = [rise, build(total_steps - steps)]
    return lr_scheduler.SequentialLR(optimizer, parts, milestones=[steps])


def _check_floor(optimizer: torch.optim.Optimizer, floor: float) -> None:
    lr = optimizer.param_groups[0]["lr"]
    if floor >= lr:
        raise ValueError(f"floor {floor:g} is not below the learning rate, {lr:g}")


class Schedule:
    """The learning rate of the next batch.

    It drives torch's scheduler on a throw-away optimizer, because a strategy may keep the real one
    in another process (a parameter server) or share it between several (Hogwild).
    """

    def __init__(self, entry: Entry, lr: float, total_steps: int) -> None:
        holder = torch.optim.SGD([torch.zeros(1)], lr=lr)
        self.scheduler = registry.schedules()[entry.name].load()(
            holder, total_steps, **entry.options
        )
        holder.step()  # torch warns about schedulers that step before their optimizer
        self.per_epoch = isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau)
        self.holder = holder

    @property
    def lr(self) -> float:
        return self.holder.param_groups[0]["lr"]

    def end_batch(self) -> None:
        if not self.per_epoch:
            self.scheduler.step()

    def end_epoch(self, loss: float) -> None:
        if self.per_epoch:
            self.scheduler.step(loss)

    def state(self) -> dict[str, Any]:
        return {"scheduler": self.scheduler.state_dict(), "holder": self.holder.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state["scheduler"])
        self.holder.load_state_dict(state["holder"])
