"""Serial training on a GPU: a reference to compare the CPU cores with.

`device` is any torch.device: https://docs.pytorch.org/docs/stable/tensor_attributes.html
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from allcores.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


class Accelerator(Strategy):
    """Apply the gradient to the weights on the device, in fp32. Sends nothing to other ranks."""

    one_worker = True
    look = ("#117733", "<")
    equals_serial = "with one worker"  # on the device "cpu"; elsewhere up to rounding
    reference = True

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: OptimizerMaker,
        world: World,
        *,
        device: str = "cuda",
    ) -> None:
        self.replica = copy.deepcopy(model).to(device)
        super().__init__(model, make_optimizer(self.replica.parameters()), world)
        self.model, self.trained = _RoundTrip(self.replica, device), self.replica

    @classmethod
    def refusal(cls, model: nn.Module, *, device: str = "cuda") -> str | None:  # type: ignore[override]
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:  # torch asserts that it has CUDA
            return f"cannot compute on the device {device!r}: {str(error).splitlines()[0]}"
        return super().refusal(model)

    def synchronize(self) -> None:
        self.module.load_state_dict(self.replica.state_dict())

    def state(self) -> dict[str, Any]:
        self.synchronize()  # the run may be in the middle of an epoch
        return super().state()

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.replica.load_state_dict(state["model"])


class _RoundTrip(torch.nn.Module):
    """Moves images to the device, computes the scores there, and returns them on the CPU."""

    def __init__(self, module: nn.Module, device: str) -> None:
        super().__init__()
        self.module, self.device = module, device

    def forward(self, images: Tensor) -> Tensor:
        return self.module(images.to(self.device)).cpu()
