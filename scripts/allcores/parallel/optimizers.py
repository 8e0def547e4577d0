"""Optimizers of all weights or of a part of them, which clip by the norm of the whole gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


# How many numbers of a gradient are squared at a time, in double precision.
PART = 1 << 18
# Added to the norm before dividing by it, as in torch.nn.utils.clip_grad_norm_.
LEAST_NORM = 1e-6


@dataclass(frozen=True)
class OptimizerMaker:
    """A factory of torch's optimizers, which clip gradients if clip_norm is given.

    Gradients whose Euclidean norm is above clip_norm are scaled down (Pascanu et al. 2013, "On the
    difficulty of training recurrent neural networks"). The norm is that of the whole gradient,
    however many processes hold parts of it. It is summed in double precision, so that the factor
    is the same however the gradient is cut.

    Attributes:
        make: function of a list of parameters that returns one of torch's optimizers.
        clip_norm: None: gradients stay as they are.
    """

    make: Callable
    clip_norm: float | None = None

    def __call__(
        self, parameters: Iterable[Tensor], add_up: Callable[[Tensor], Tensor] | None = None
    ) -> torch.optim.Optimizer:
        """Return an optimizer of these parameters.

        Args:
            add_up: function of a tensor that returns its sum over the processes that hold the
                parts of the gradient and update them at the same time; None: this process holds
                the whole gradient.
        """
        optimizer = self.make(list(parameters))
        if self.clip_norm is not None:
            optimizer.register_step_pre_hook(lambda *_: self.clip(_gradients(optimizer), add_up))
        return optimizer

    @property
    def without_clipping(self) -> OptimizerMaker:
        """The maker for gradients that are clipped elsewhere."""
        return dataclasses.replace(self, clip_norm=None)

    def clip(
        self, gradients: Iterable[Tensor], add_up: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        """Scale a gradient down to clip_norm, in place.

        Args:
            gradients: the tensors that make up the gradient.
            add_up: as in __call__().
        """
        if self.clip_norm is None:
            return
        squares = torch.zeros(1, dtype=torch.float64)
        for gradient in gradients:
            numbers = gradient.detach().flatten()
            numbers = torch.view_as_real(numbers).flatten() if numbers.is_complex() else numbers
            for part in numbers.split(PART):
                squares += part.double().square().sum()
        norm = float((add_up(squares) if add_up else squares).sqrt())
        if norm > self.clip_norm:
            for gradient in gradients:
                gradient.mul_(self.clip_norm / (norm + LEAST_NORM))


def _gradients(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
