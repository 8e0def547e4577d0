"""The ring from scratch against gloo's own all_reduce, both averaging the same vector."""

import torch
import torch.distributed as dist
from side_by_side import compare, for_each_length

from allcores.strategies.ring import RingAverage


def alternatives(length, world):
    vector = torch.randn(length)
    ring = RingAverage(vector, world)

    def by_gloo():
        dist.all_reduce(vector)
        vector.div_(world.workers)

    def by_ring():
        ring.reduce_scatter()
        ring.all_gather()

    return {"gloo all_reduce": by_gloo, "ring": by_ring}


if __name__ == "__main__":
    compare("ring", for_each_length(alternatives))
