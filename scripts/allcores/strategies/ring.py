"""Synchronous data parallelism over a ring all-reduce, from scratch.

The vector is cut into as many chunks as there are workers, and each worker exchanges only with its
neighbours. Reduce-scatter: W - 1 times, each worker passes a chunk to the right, and adds its own
part to the one that it receives, until each has one chunk that all have added to. All-gather: the
finished chunks are passed around, again W - 1 times. With W workers and n weights, each worker
sends 2 (W - 1) / W * n numbers per step, less than 2 n however many workers there are. That is the
least possible.

Guarantees: every worker applies the same averaged gradient, bit for bit, so all hold the same
weights after each step. They are those of serial training up to rounding.

Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations";
Baidu 2017, "Bringing HPC techniques to deep learning".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from allcores.parallel.flat import Flat
from allcores.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


# A larger chunk is sent in pieces, so that one is added while the next arrives. Smaller pieces do
# not pay: each costs a message, 0.1 ms on a machine where 16 MiB take 14 ms.
PIECE_BYTES = 16 << 20


class RingAverage:
    """The average of one vector over the workers, repeatedly and in place.

    Args:
        vector: (n,), any floating dtype, any length; shape and dtype are the same on all workers.
        piece_bytes: most bytes to send at a time.
    """

    def __init__(self, vector: Tensor, world: World, piece_bytes: int = PIECE_BYTES) -> None:
        self.world = world
        self.right = (world.rank + 1) % world.workers
        self.left = (world.rank - 1) % world.workers
        piece = piece_bytes // vector.element_size()

        def pieces(tensor: Tensor) -> list[list[Tensor]]:
            return [
                [part for part in chunk.split(piece) if len(part)]
                for chunk in tensor.tensor_split(world.workers)
            ]

        self.chunks = pieces(vector)
        self.inbox = pieces(torch.empty_like(vector))
        # Handles are kept until the next exchange: freeing each as it ends would double the time of
        # a small exchange.
        self.to_add: list[Any] = []
        self.to_gather: list[Any] = []
        self.sends: list[Any] = []

    def reduce_scatter(self) -> None:
        """Leave the workers' average of chunk rank + 1, the last to arrive, in this vector."""
        rank, workers = self.world.rank, self.world.workers
        # All receives are posted before anything is sent, so that no send waits for its receiver.
        # The receives of the all-gather can also be posted: a finished chunk arrives only after my
        # part of it has been sent.
        self.to_add = self._receive(rank, self.inbox)
        self.to_gather = self._receive(rank + 1, self.chunks)
        self.sends = []
        self._pass_around(rank, self.to_add)
        for piece in self.chunks[(rank + 1) % workers]:
            piece.div_(workers)

    def all_gather(self) -> None:
        """Pass the averaged chunks around, so that all workers have all of them."""
        self._pass_around(self.world.rank + 1, self.to_gather)
        for send in self.sends:
            send.wait()

    def _receive(self, first: int, inbox: Any) -> Any:
        """Post the receives of a phase that starts by sending chunk `first`.

        Returns:
            For each chunk that arrives from the left, a list with a tuple for each of its pieces:
            (this worker's part, the buffer for the neighbour's part, the handle to wait for).
        """
        workers = self.world.workers
        arriving = [(first - step) % workers for step in range(1, workers)]
        return [
            [
                (mine, theirs, self.world.receive(theirs, self.left))
                for mine, theirs in zip(self.chunks[chunk], inbox[chunk], strict=True)
            ]
            for chunk in arriving
        ]

    def _pass_around(self, first: int, receives: Any) -> None:
        """Send my chunk `first` to the right, then forward each chunk that comes from the left."""
        if receives:  # alone there is nobody to send to
            for piece in self.chunks[first % self.world.workers]:
                self.sends.append(self.world.send(piece, self.right))
        for step, chunk in enumerate(receives, start=1):
            for mine, theirs, receive in chunk:
                receive.wait()
                if theirs is not mine:
                    mine.add_(theirs)
                if step < len(receives):
                    self.sends.append(self.world.send(mine, self.right))


class Ring(Strategy):
    """Average the gradient around the ring, then update locally."""

    look = ("#029e73", "p")
    equals_serial = "always"
    element_wise = True

    flat: Flat

    def __init__(self, model: nn.Module, make_optimizer: OptimizerMaker, world: World) -> None:
        self.flat = Flat(model)
        super().__init__(model, make_optimizer(self.flat.parts), world)
        self.ring = RingAverage(self.flat.gradient, world)

    def step(self, lr: float) -> None:
        self.world.clock.enter("reduce_scatter")
        self.ring.reduce_scatter()
        self.world.clock.enter("all_gather")
        self.ring.all_gather()
        self.update(lr)
        self.flat.gradient.zero_()
