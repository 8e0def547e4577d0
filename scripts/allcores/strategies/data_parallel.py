"""torch's nn.DataParallel, the built-in that many programs try first.

It splits a batch over the threads of one process, one per *GPU*. Without a GPU, it calls the model
as it is. So on a CPU it is serial training in one process, which this strategy is here to show.

https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from allcores.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


class DataParallel(Strategy):
    """Apply the gradient to the weights. Sends nothing on a CPU."""

    one_worker = True
    look = ("#949494", "D")
    equals_serial = "with one worker"

    def __init__(self, model: nn.Module, make_optimizer: OptimizerMaker, world: World) -> None:
        super().__init__(model, make_optimizer(model.parameters()), world)
        self.model = torch.nn.DataParallel(model)
