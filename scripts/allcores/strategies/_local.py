"""Base of the strategies in which each worker trains its own copy of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allcores.parallel.flat import Flat
from allcores.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


class LocalStrategy(Strategy):
    """A strategy whose workers' weights differ during an epoch and are averaged at its end."""

    flat: Flat

    def __init__(self, model: nn.Module, make_optimizer: OptimizerMaker, world: World) -> None:
        self.flat = Flat(model)
        super().__init__(model, make_optimizer(self.flat.parts), world)

    def average(self, vector: Tensor) -> None:
        """Average a vector over all workers, in place."""
        self.world.all_reduce(vector).div_(self.world.workers)

    def synchronize(self) -> None:
        self.average(self.flat.weights)
        self.world.average(self.state_per_weight())
        super().synchronize()

    def state_of_worker(self) -> dict[str, Any]:
        state = {"weights": self.flat.weights, "optimizer": self.optimizer.state_dict()}
        return super().state_of_worker() | state

    def restore_worker(self, state: dict[str, Any]) -> None:
        super().restore_worker(state)
        self.flat.weights.copy_(state["weights"])
        self.restore_optimizer(state["optimizer"])
