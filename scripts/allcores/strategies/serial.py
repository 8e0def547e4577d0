"""Serial training: one process, as many intra-op threads as it is given. The baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


class Serial(Strategy):
    """Apply the gradient to the weights. Sends nothing."""

    one_worker = True
    is_plain = True
    look = ("#333333", "o")
    equals_serial = "with one worker"

    def __init__(self, model: nn.Module, make_optimizer: OptimizerMaker, world: World) -> None:
        super().__init__(model, make_optimizer(model.parameters()), world)
