"""Serial training: one process, as many intra-op threads as it is given. The baseline."""

from allcores.strategies.base import Strategy


class Serial(Strategy):
    """Apply the gradient to the weights. Sends nothing."""

    one_worker = True

    def step(self, lr):
        self.update(lr)
