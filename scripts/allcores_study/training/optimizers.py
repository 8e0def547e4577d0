"""The optimizer of a run, and the average of its weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import swa_utils

from allcores.parallel.optimizers import OptimizerMaker
from allcores_study.config import registry

if TYPE_CHECKING:
    from allcores_study.config.run import Entry, Run

# Optimizers for which torch has a fused kernel on a CPU, and options that exclude it.
FUSED = {"SGD", "Adam", "AdamW", "Adagrad"}
NOT_FUSED = {"foreach", "differentiable", "capturable"}


def maker_of(run: Run) -> OptimizerMaker:
    """Return the OptimizerMaker of a Run."""
    assert run.optimizer is not None
    return OptimizerMaker(partial(make_chosen, run.optimizer), run.clip_norm)


def make_chosen(entry: Entry, parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    """Return the optimizer of an Entry of a class of torch.optim, fused where torch can."""
    make = registry.optimizers()[entry.name].load()
    if not _can_be_fused(entry, parameters):
        return make(parameters, **entry.options)
    optimizer = make(parameters, **{"fused": True} | entry.options)
    _leave_sparse(optimizer)
    if entry.options.get("momentum"):
        optimizer.register_step_pre_hook(_begin_late)
    return optimizer


def _can_be_fused(entry: Entry, parameters: list[torch.Tensor]) -> bool:
    options = entry.options
    # With dampening, a first gradient counts differently from later ones: see _begin_late().
    is_dampened = options.get("momentum") and options.get("dampening")
    is_asked_for = entry.name in FUSED and not NOT_FUSED & options.keys()
    are_real = all(parameter.is_floating_point() for parameter in parameters)
    return is_asked_for and are_real and not is_dampened


def _leave_sparse(optimizer: torch.optim.Optimizer) -> None:
    """Have a fused optimizer update like a plain one if its first gradients are sparse."""

    is_first = True

    def look(*_: Any) -> None:
        nonlocal is_first
        if is_first:
            (group,) = optimizer.param_groups
            gradients = [parameter.grad for parameter in group["params"]]
            if any(gradient is not None and gradient.is_sparse for gradient in gradients):
                group["fused"] = False
            is_first = False

    optimizer.register_step_pre_hook(look)


def _begin_late(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Start a momentum at zero for weights that get their first gradient later than others.

    It is called before a step of fused SGD, and does not change the result. torch's kernel needs
    momentum for all weights or for none.
    """
    (group,) = optimizer.param_groups
    if len(optimizer.state) >= len(group["params"]):
        return  # all have had a gradient
    updated = [parameter for parameter in group["params"] if parameter.grad is not None]
    if any(parameter in optimizer.state for parameter in updated):
        for parameter in updated:
            optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))


def _but_counts(rule: Callable[..., None]) -> Callable[..., None]:
    """Return a rule of torch's for averages that copies what has no average.

    These are integers, such as batch norm's counts, and infinities, such as a mask's.
    """

    def average(
        averaged: list[torch.Tensor], current: list[torch.Tensor], count: torch.Tensor | int
    ) -> None:
        if averaged[0].dtype.is_floating_point or averaged[0].dtype.is_complex:
            rule(averaged, current, count)
            for mine, now in zip(averaged, current, strict=True):
                mine.copy_(torch.where(now.isfinite(), mine, now))
        else:
            torch._foreach_copy_(averaged, current)

    return average


class WeightAverage:
    """The exponential moving average of the weights over a training, which the run ships.

    It is torch's own (Polyak and Juditsky 1992). Batch-norm statistics are also averaged. Only rank
    0 keeps the average, of the weights that it computes with.

    Args:
        run: its `ema` is the decay.
        module: the module whose weights each step updates.
        rank: rank of this worker.
    """

    def __init__(self, run: Run, module: torch.nn.Module, rank: int) -> None:
        self.module, self.averaged = module, None
        if rank == 0 and run.ema:
            rule = _but_counts(swa_utils.get_ema_multi_avg_fn(run.ema))
            self.averaged = swa_utils.AveragedModel(module, multi_avg_fn=rule, use_buffers=True)

    def take(self) -> None:
        """Add the weights after a step to the average."""
        if self.averaged:
            self.averaged.update_parameters(self.module)

    def weights(self, model: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Return the state_dict that the run ships: of the average, else of the model."""
        if self.averaged is None or not self.averaged.n_averaged:
            return model.state_dict()
        return {name: value.cpu() for name, value in self.averaged.module.state_dict().items()}

    def state(self) -> dict[str, torch.Tensor] | None:
        """Return all that a resumed run needs, as tensors; None: there is no average."""
        return self.averaged and self.averaged.state_dict()  # type: ignore[return-value]

    def restore(self, state: dict[str, torch.Tensor] | None) -> None:
        """Load what state() returned."""
        if self.averaged:
            assert state is not None
            self.averaged.load_state_dict(state)
