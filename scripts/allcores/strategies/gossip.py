"""Gossip: every worker trains by itself and averages with its two neighbours, from scratch.

The workers form a ring. After each step, a worker replaces its weights with the average of its own
and its neighbours'. Nothing is ever summed over all workers, yet all approach the common average,
more slowly in a larger ring. With n weights, each worker sends 2 n numbers per step to its two
neighbours (n with two workers), however many workers there are.

Guarantees: workers differ during an epoch. At its end all take the average of all weights and of
the optimizer's state, so that there is one model to score, ship and resume from. With one worker,
it is serial training.

Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?" (D-PSGD).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from allcores.strategies._local import LocalStrategy

if TYPE_CHECKING:
    from torch import nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


class Gossip(LocalStrategy):
    """Update locally, average with the neighbours."""

    look = ("#ca9161", "v")
    equals_serial = "with one worker"
    element_wise = True

    def __init__(self, model: nn.Module, make_optimizer: OptimizerMaker, world: World) -> None:
        super().__init__(model, make_optimizer, world)
        ranks = {(world.rank - 1) % world.workers, (world.rank + 1) % world.workers}
        self.neighbours = sorted(ranks - {world.rank})
        self.inbox = torch.empty(
            len(self.neighbours), len(self.flat.weights), dtype=self.flat.weights.dtype
        )

    def step(self, lr: float) -> None:
        self.update(lr)
        self.flat.gradient.zero_()
        self.world.clock.enter("communicate")
        exchanges = [
            self.world.receive(theirs, neighbour)
            for theirs, neighbour in zip(self.inbox, self.neighbours, strict=True)
        ]
        exchanges += [
            self.world.send(self.flat.weights, neighbour) for neighbour in self.neighbours
        ]
        for exchange in exchanges:
            exchange.wait()
        for theirs in self.inbox:
            self.flat.weights.add_(theirs)
        self.flat.weights.div_(1 + len(self.neighbours))
