"""Hogwild: updates without locks in shared memory, from scratch.

All workers compute with one vector of weights in shared memory. Each applies its own gradient as
soon as it is computed, whatever the others are doing. They may read half-updated weights, and when
two update a number at the same time, one update may be lost. This is rare, and training tolerates
it. Nothing is sent.

Each worker keeps its own optimizer state (momentum, Adam's moments), computed from its own
gradients and averaged at the end of an epoch. `state: shared` keeps one state for all in shared
memory, updated in the same lock-free way. That suits momentum. It can break Adam: a worker may
divide a first moment that others have just raised by the root of a second moment that it read
before. Where that was zero, the update ruins the weight. With Adam, combine `state: shared` with
`locked: true`.

Batch-norm statistics are also each worker's own and averaged at the end of an epoch. They follow
the samples that a worker has seen and do not enter its gradients.

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


ALLOWED = {"state": ("own", "shared")}


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
        state: str = "own",
    ) -> None:
        self.flat = Flat(model, weights=world.shared.zeros)
        super().__init__(model, make_optimizer(self.flat.parts), world)
        self.lock = world.shared.lock if locked else contextlib.nullcontext
        self.has_own_state = state == "own"
        self.to_share = not self.has_own_state
        self.staleness = Staleness()
        # Each worker counts its updates in its own place, so that no count is lost.
        self.updates = world.shared.zeros((world.workers,), torch.int64)
        self.updates_read = 0
        world.barrier()  # every worker has written the initial weights

    def step(self, lr: float) -> None:
        if self.to_share and self.world.rank > 0:
            self._share_state()
        self.world.clock.enter("wait")
        with self.lock():
            self.staleness.add(int(self.updates.sum()) - self.updates_read)
            self.updates[self.world.rank] += 1
            self.update(lr / self.world.workers)
        if self.to_share:
            self._share_state()
        self.updates_read = int(self.updates.sum())
        self.flat.gradient.zero_()

    def _share_state(self) -> None:
        """Put the optimizer's state into shared memory.

        torch's optimizers create it in their first update, here that of rank 0; the others wait.
        """
        self.optimizer.load_state_dict(self.world.broadcast(self.optimizer.state_dict()))
        for state in self.optimizer.state.values():
            for name, value in state.items():
                if torch.is_tensor(value):
                    state[name] = self.world.shared.zeros(value.shape, value.dtype).copy_(value)
        self.world.barrier()
        self.to_share = False

    def synchronize(self) -> None:
        self.world.barrier()  # all updates have been made
        self.updates_read = int(self.updates.sum())
        if self.has_own_state:
            self.world.average(self.state_per_weight())
        super().synchronize()
        self.counts = self.world.all_reduce(self.staleness.take())

    def record(self) -> dict[str, Any]:
        return {"staleness": as_list(self.counts)}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        if self.to_share:
            self._share_state()
        self.world.barrier()  # every worker has written the restored weights

    def state_of_worker(self) -> dict[str, Any]:
        state: dict[str, Any] = {"staleness": self.staleness.counts}
        if self.has_own_state:
            state["optimizer"] = self.optimizer.state_dict()
        return super().state_of_worker() | state

    def restore_worker(self, state: dict[str, Any]) -> None:
        super().restore_worker(state)
        self.staleness.counts = state["staleness"]
        if self.has_own_state:
            self.optimizer.load_state_dict(state["optimizer"])
