"""The exchange of 2 nodes x 2 workers: two-level shared memory against gloo's all_reduce over all.

The nodes are on this machine and reach each other by its loopback interface, which is faster than
most networks and as fast as the connections within gloo's all_reduce.
"""

from functools import partial

import torch
from side_by_side import LENGTHS, compare

from allcores.study import registry

NODES, WORKERS = 2, 4


class NoUpdate(torch.optim.Optimizer):
    """Leaves the weights alone: the exchange is what is timed."""

    clip_norm = None  # as OptimizerMaker says that nothing is clipped

    def __init__(self, parameters, add_up=None):
        super().__init__(parameters, {})

    def step(self):
        pass


def alternatives(length, world):
    vector = torch.randn(length)
    model = torch.nn.ParameterList([torch.zeros(length)])
    shared_memory = registry.strategies()["shared_memory"].load()(model, NoUpdate, world)

    def by_gloo():
        world.all_reduce(vector).div_(world.workers)

    def in_two_levels():
        shared_memory.missing.clear()  # as if backward() had put a gradient there
        shared_memory.step(0.01)

    return {"gloo all_reduce": by_gloo, "two levels": in_two_levels}


if __name__ == "__main__":
    cases = [(f"{length:,} floats", WORKERS, partial(alternatives, length)) for length in LENGTHS]
    compare("two_level", cases, NODES)
