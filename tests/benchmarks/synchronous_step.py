"""One synchronous step, exchange and SGD-momentum update: shared memory against gloo.

Clearing gloo's gradient is left out, which shared memory does not need.
"""

from functools import partial

import torch
from side_by_side import compare, for_each_length

from allcores.parallel.flat import Flat
from allcores.strategies.base import Strategy
from allcores.study import registry
from allcores.study.run import Choice
from allcores.training.optimizers import OptimizerMaker

SGD = Choice("SGD", "SGD", {"lr": 0.01, "momentum": 0.9})


class AllReduce(Strategy):
    """What shared memory is held against: gloo's all_reduce of one vector, then the same update."""

    def __init__(self, model, make_optimizer, world):
        self.flat = Flat(model)
        super().__init__(model, make_optimizer(self.flat.parts), world)

    def step(self, lr):
        self.world.all_reduce(self.flat.gradient).div_(self.world.workers)
        self.update(lr)


def alternatives(length, world):
    def make(strategy):
        model = torch.nn.ParameterList([torch.zeros(length)])
        return strategy(model, OptimizerMaker(SGD), world)

    gloo = make(AllReduce)
    shared_memory = make(registry.strategies()["shared_memory"].load())

    def in_shared_memory():
        shared_memory.missing.clear()  # as if backward() had put a gradient there
        shared_memory.step(0.01)

    return {"gloo all_reduce": partial(gloo.step, 0.01), "shared_memory": in_shared_memory}


if __name__ == "__main__":
    compare("synchronous_step", for_each_length(alternatives))
