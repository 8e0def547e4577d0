"""torch's nn.DataParallel, the built-in that many programs try first.

It splits a batch over the threads of one process, one per *GPU*. Without a GPU there is nothing to
split over: it calls the model as it is. So on a CPU it is serial training, one process, and this
strategy is here to show just that.

https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
"""

import torch

from allcores.strategies.base import Strategy


class DataParallel(Strategy):
    """Apply the gradient to the weights. Sends nothing on a CPU."""

    one_worker = True
    look = ("#949494", "D")
    equals_serial = "with one worker"

    def __init__(self, model, make_optimizer, world):
        super().__init__(model, make_optimizer(model.parameters()), world)
        self.model = torch.nn.DataParallel(model)
