"""Serial training: one process, as many intra-op threads as it is given. The baseline."""

from allcores.strategies.base import Strategy


class Serial(Strategy):
    """Apply the gradient to the weights. Sends nothing."""

    one_worker = True
    equals_serial = "with one worker"

    def __init__(self, model, make_optimizer, world):
        super().__init__(model, make_optimizer(model.parameters()), world)

    def step(self, lr):
        self.update(lr)
        self.optimizer.zero_grad()
