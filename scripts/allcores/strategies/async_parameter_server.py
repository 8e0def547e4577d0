"""Asynchronous parameter servers (Downpour SGD), from scratch.

As in parameter_server.py, servers hold the weights and the optimizer, each for a slice of the
vector. But no worker waits for another: a server applies each gradient as it arrives, to weights
that have changed since the worker pulled them. A worker pushes the mean of its gradients every
n_push steps and pulls the weights every n_pull steps. In between it makes plain gradient steps with
its own copy. With n weights, each worker sends n / n_push numbers per step and receives n / n_pull.

Guarantees: no update is lost, and at the end of an epoch all have been applied and all workers hold
the servers' weights. The result depends on timing. With one worker that pushes and pulls at every
step, it is serial training.

The servers count the staleness: how many updates others made between pull and push.

Dean et al. 2012, "Large Scale Distributed Deep Networks".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from allcores.parallel.flat import split
from allcores.strategies._servers import GRADIENT, PULL, PUSH, REPORT, ServedStrategy
from allcores.strategies._staleness import Staleness, as_list

if TYPE_CHECKING:
    from torch import nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


ALLOWED = {"servers": 1, "n_push": 1, "n_pull": 1}
# The state of a worker, besides its weights.
WORKER_STATE = ("accrued", "accrued_steps", "steps_since_pull", "pushed", "versions")


class AsyncParameterServer(ServedStrategy):
    """Push accumulated gradients every n_push steps, pull the weights every n_pull steps."""

    look = ("#56b4e9", "s")
    equals_serial = "with one worker"
    element_wise = True
    asynchronous = True

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: OptimizerMaker,
        world: World,
        *,
        servers: int = 1,
        n_push: int = 1,
        n_pull: int = 1,
    ) -> None:
        # Servers update at different times: a gradient is clipped before it is cut.
        super().__init__(model, make_optimizer.without_clipping, world, servers)
        self.clip = make_optimizer.clip
        if min(n_push, n_pull) < 1:
            raise ValueError(f"n_push, n_pull: found {n_push}, {n_pull}; expected 1 or more")
        self.n_push, self.n_pull = n_push, n_pull
        self.accrued = torch.zeros_like(self.flat.gradient)
        self.accrued_steps = self.steps_since_pull = self.pushed = 0
        self.versions = torch.zeros(servers, 1, dtype=torch.int64)
        # Used by servers only.
        self.version, self.staleness = torch.zeros(1, dtype=torch.int64), Staleness()

    def step(self, lr: float) -> None:
        self.world.clock.enter("push")
        self.accrued.add_(self.gradient)
        self.accrued_steps += 1
        self.steps_since_pull += 1
        self.lr = lr
        if self.accrued_steps == self.n_push:
            self._push()
        if self.steps_since_pull == self.n_pull:
            self._pull()
        else:
            self.world.clock.enter("update")
            self.flat.weights.add_(self.gradient, alpha=-lr / self.world.workers)
        self.gradient.zero_()

    def _push(self) -> None:
        """Send the mean of the accrued gradients, with the learning rate times their number."""
        self.accrued.div_(self.accrued_steps)
        self.clip([self.accrued])
        lr = self.lr * self.accrued_steps / self.world.workers
        parts = split(self.accrued, len(self.servers))
        for server, part, version in zip(self.servers, parts, self.versions, strict=True):
            self.request(server, PUSH, lr, int(version))
            self.world.send(part, server, GRADIENT).wait()
            version += 1  # this worker's own update does not make it stale
        self.accrued.zero_()
        self.accrued_steps = 0
        self.pushed += 1

    def _pull(self) -> None:
        self.world.clock.enter("wait")
        answers, pulls = [], []
        for (server, weights, _), version in zip(self.slices, self.versions, strict=True):
            answers.append(self.world.receive(version, server))
            pulls.append(self.world.receive(weights, server))
            self.request(server, PULL)
        for answer in answers:
            answer.wait()
        self.world.clock.enter("pull")
        for pull in pulls:
            pull.wait()
        self.steps_since_pull = 0

    def synchronize(self) -> None:
        if self.accrued_steps:
            self._push()
        # A push returns once it is received, and a server applies it before its next request.
        self.world.barrier()
        self._pull()
        super().synchronize()
        self.pushed_by_all = int(self.world.all_reduce(torch.tensor([self.pushed])))
        self.pushed = 0

    def record(self) -> dict[str, Any]:
        """Return how many gradients were pushed and applied with each staleness, at all servers."""
        counts = sum(self.ask(server, REPORT) for server in self.servers)
        return {"pushed": self.pushed_by_all * len(self.servers), "staleness": as_list(counts)}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        # At the end of an epoch all have pulled; in the middle of one, restore_worker() follows.
        for version, server in zip(self.versions, state["servers"], strict=True):
            version.copy_(server["version"])

    def state_of_worker(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in WORKER_STATE}
        return super().state_of_worker() | state | {"weights": self.flat.weights}

    def restore_worker(self, state: dict[str, Any]) -> None:
        super().restore_worker(state)
        for name in WORKER_STATE:
            setattr(self, name, state[name])
        self.flat.weights.copy_(state["weights"])

    def state_of_server(self) -> dict[str, Any]:
        state = {"weights": self.weights, "version": self.version, "counts": self.staleness.counts}
        return super().state_of_server() | state

    def restore_server(self, state: dict[str, Any]) -> None:
        super().restore_server(state)
        self.weights.copy_(state["weights"])
        self.version, self.staleness.counts = state["version"], state["counts"]

    def serve(self) -> None:
        for worker, kind, lr, pulled_version in self.requests():
            if kind == PUSH:
                self.world.receive(self.gradient, worker, GRADIENT).wait()
                self.staleness.add(int(self.version) - pulled_version)
                self.update(lr)
                self.version += 1
            elif kind == PULL:
                for tensor in (self.version, self.weights):
                    self.world.send(tensor, worker).wait()
            else:
                self.world.send_value(self.staleness.take(), worker)
