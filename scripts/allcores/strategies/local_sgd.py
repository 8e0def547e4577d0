"""Local SGD: every worker trains by itself, and all average every few steps, from scratch.

Each worker updates its own copy of the weights with its own gradients. After `every` steps, all
replace theirs with the average. Each worker keeps its own optimizer state (momentum, Adam's
moments), which is averaged at the end of an epoch. With W workers and n weights, each worker sends
2 (W - 1) / W * n numbers per average, and 1 / `every` of that per step.

`backend: shm` exchanges in shared memory instead of by gloo (see parallel/process_group.py).

`post_local: k` averages after each of the first k steps (post-local SGD): copies drift apart most
while the weights change fastest.

Guarantees: all workers hold the same weights after each average and at the end of an epoch. With
`every: 1` and an update that is linear in the gradient (SGD, also with momentum), they are those of
serial training up to rounding.

Stich 2019, "Local SGD Converges Fast and Communicates Little"; Lin et al. 2020, "Don't Use Large
Mini-Batches, Use Local SGD" (post-local).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allcores.parallel.process_group import of_workers
from allcores.strategies._local import LocalStrategy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


ALLOWED = {"backend": ("gloo", "shm"), "every": 1, "post_local": 0}


class LocalSGD(LocalStrategy):
    """Update locally, average now and then."""

    look = ("#808000", "*")
    equals_serial = "with one worker"
    element_wise = True

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: OptimizerMaker,
        world: World,
        *,
        backend: str = "gloo",
        every: int = 8,
        post_local: int = 0,
    ) -> None:
        super().__init__(model, make_optimizer, world)
        if every < 1:
            raise ValueError(f"every: found {every}; expected 1 or more")
        self.every, self.post_local = every, post_local
        self.steps, self.group = 0, of_workers(world, backend)

    def average(self, vector: Tensor) -> None:
        self.world.all_reduce(vector, self.group).div_(self.world.workers)

    def step(self, lr: float) -> None:
        self.update(lr)
        self.flat.gradient.zero_()
        self.steps += 1
        if self.steps % self.every == 0 or self.steps <= self.post_local:
            self.world.clock.enter("communicate")
            self.average(self.flat.weights)

    def state(self) -> dict[str, Any]:
        return super().state() | {"steps": self.steps}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.steps = state["steps"]
