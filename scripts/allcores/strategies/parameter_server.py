"""Synchronous parameter servers, from scratch.

Servers are separate processes that hold the weights and the optimizer, each for a slice of the
vector. In every step, each worker pushes its gradient. A server that has those of all workers
averages them, updates its slice and answers with the new weights. With W workers, S servers and n
weights, each worker sends and receives n numbers per step, and each server W / S * n. So one server
is soon the bottleneck; several share the load.

Guarantees: all workers hold the same weights after each step, those of serial training up to
rounding.

Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from allcores.strategies._servers import GRADIENT, PUSH, ServedStrategy

if TYPE_CHECKING:
    from torch import nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


ALLOWED = {"servers": 1}


class ParameterServer(ServedStrategy):
    """Push the gradient, wait for the other workers and the update, pull the weights."""

    look = ("#de8f05", "X")
    equals_serial = "always"
    element_wise = True

    def __init__(
        self, model: nn.Module, make_optimizer: OptimizerMaker, world: World, *, servers: int = 1
    ) -> None:
        super().__init__(model, make_optimizer, world, servers)
        # A number sent before the weights, to time waiting and receiving separately.
        self.answers = torch.empty(servers, 1)

    def step(self, lr: float) -> None:
        world = self.world
        world.clock.enter("push")
        answers, pulls, pushes = [], [], []
        for (server, weights, gradient), answer in zip(self.slices, self.answers, strict=True):
            answers.append(world.receive(answer, server))
            pulls.append(world.receive(weights, server))
            if world.rank == 0:
                self.request(server, PUSH, lr)
            pushes.append(world.send(gradient, server, GRADIENT))
        for push in pushes:
            push.wait()
        world.clock.enter("wait")
        for answer in answers:
            answer.wait()
        world.clock.enter("pull")
        for pull in pulls:
            pull.wait()
        self.gradient.zero_()

    def serve(self) -> None:
        world, answer = self.world, torch.zeros(1)
        inbox = torch.empty(world.workers, len(self.gradient), dtype=self.gradient.dtype)
        for _, _, lr, _ in self.requests():
            receives = [world.receive(part, worker, GRADIENT) for worker, part in enumerate(inbox)]
            for receive in receives:
                receive.wait()
            torch.mean(inbox, dim=0, out=self.gradient)
            self.update(lr)
            sends = [
                world.send(tensor, worker)
                for worker in range(world.workers)
                for tensor in (answer, self.weights)
            ]
            for send in sends:
                send.wait()
