"""Hogwild: updates without locks in shared memory, from scratch.

All workers compute with one vector of weights in shared memory. Each applies its own gradient as
soon as it is computed, whatever the others are doing. They may read half-updated weights, and when
two update a number at the same time, one update may be lost. This is rare, and training tolerates
it. Nothing is sent.

Each worker keeps its own optimizer state (momentum, Adam's moments), computed from its own
gradients and averaged at the end of an epoch. Batch-norm statistics are also each worker's own and
averaged then. They follow the samples that a worker has seen and do not enter its gradients.

`locked: true` lets one worker update at a time, which loses no update and shows what locks cost.

Guarantees: at the end of an epoch all updates have been made and all workers hold the same weights.
The result depends on timing. With one worker, it is serial training.

Staleness is counted: how many updates others began between reading weights and updating them.

Recht et al. 2011, "Hogwild!: A Lock-Free Approach to Parallelizing Stochastic Gradient Descent".
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from allcores.parallel.flat import Flat
from allcores.strategies._staleness import Staleness, as_list
from allcores.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


class Hogwild(Strategy):
    """Apply my gradient to everybody's weights."""

    look = ("#cc78bc", "P")
    equals_serial = "with one worker"
    element_wise = True
    asynchronous = True
    one_node = True

    flat: Flat

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: OptimizerMaker,
        world: World,
        *,
        locked: bool = False,
    ) -> None:
        self.flat = Flat(model, weights=world.shared.zeros)
        super().__init__(model, make_optimizer(self.flat.parts), world)
        self.lock = world.shared.lock if locked else contextlib.nullcontext
        self.staleness = Staleness()
        # Each worker counts its updates in its own place, so that no count is lost.
        self.updates = world.shared.zeros((world.workers,), torch.int64)
        self.updates_read = 0
        world.barrier()  # every worker has written the initial weights

    def step(self, lr: float) -> None:
        self.world.clock.enter("wait")
        with self.lock():
            self.staleness.add(int(self.updates.sum()) - self.updates_read)
            self.updates[self.world.rank] += 1
            self.update(lr / self.world.workers)
        self.updates_read = int(self.updates.sum())
        self.flat.gradient.zero_()

    def synchronize(self) -> None:
        self.world.barrier()  # all updates have been made
        self.updates_read = int(self.updates.sum())
        self.world.average(self.state_per_weight())
        super().synchronize()
        self.counts = self.world.all_reduce(self.staleness.take())

    def record(self) -> dict[str, Any]:
        return {"staleness": as_list(self.counts)}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.world.barrier()  # every worker has written the restored weights

    def state_of_worker(self) -> dict[str, Any]:
        own = {"staleness": self.staleness.counts, "optimizer": self.optimizer.state_dict()}
        return super().state_of_worker() | own

    def restore_worker(self, state: dict[str, Any]) -> None:
        super().restore_worker(state)
        self.staleness.counts = state["staleness"]
        self.restore_optimizer(state["optimizer"])
