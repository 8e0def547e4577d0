"""Base of the strategies in which each worker trains its own copy of the weights."""

from allcores.parallel.flat import Flat
from allcores.strategies.base import Strategy


class LocalStrategy(Strategy):
    """Workers' weights differ during an epoch; at its end all take the average."""

    def __init__(self, model, make_optimizer, world):
        self.flat = Flat(model)
        super().__init__(model, make_optimizer(self.flat.parts), world)

    def average(self, vector):
        """Average a vector over all workers, in place."""
        self.world.all_reduce(vector).div_(self.world.workers)

    def synchronize(self):
        self.average(self.flat.weights)
        self.world.average(self.state_per_weight())
        super().synchronize()

    def state_of_worker(self):
        state = {"weights": self.flat.weights, "optimizer": self.optimizer.state_dict()}
        return super().state_of_worker() | state

    def restore_worker(self, state):
        super().restore_worker(state)
        self.flat.weights.copy_(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
