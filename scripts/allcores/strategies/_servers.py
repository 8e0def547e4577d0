"""What the parameter servers share: slices of the vector, requests, saving and restoring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from allcores.parallel.flat import Flat, places
from allcores.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


# The kinds of request that a worker makes to a server.
PUSH, PULL, REPORT, STATE, STOP = range(5)
# The message tags of gradients, and of the squares of their norms between servers; requests have 0.
GRADIENT, SQUARES = 1, 2


class ServedStrategy(Strategy):
    """A strategy whose servers hold the weights and the optimizer, each for a slice of the vector.

    Workers exchange with servers only. If gradients are clipped, servers also send each other the
    squares of their norms. A request is a message of three numbers: its kind, a learning rate and
    a version of the weights.
    """

    flat: Flat

    def __init__(
        self, model: nn.Module, make_optimizer: OptimizerMaker, world: World, servers: int
    ) -> None:
        self.flat = Flat(model)
        self.servers = list(range(world.workers, world.size))
        weights, gradient = self.flat.weights, self.flat.gradient
        cuts = places(weights, servers)
        # (server, weights, gradient) of each slice
        self.slices = [
            (server, weights[cut], gradient[cut])
            for server, cut in zip(self.servers, cuts, strict=True)
        ]
        # A worker has all slices, and an optimizer that is never stepped: the servers update.
        mine = cuts[world.rank - world.workers] if world.is_server else slice(0, len(weights))
        self.weights, self.gradient = weights[mine], gradient[mine]
        parts = [part for _, part in self.flat.cut(mine, self.gradient)]
        super().__init__(model, make_optimizer(parts, self._add_up_slices), world)

    def state(self) -> dict[str, Any]:
        return {
            "model": self.module.state_dict(),
            "servers": [self.ask(server, STATE) for server in self.servers],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state["model"])
        if self.world.is_server:
            self.restore_server(state["servers"][self.world.rank - self.world.workers])

    def state_of_server(self) -> dict[str, Any]:
        """Return the state that only this server has."""
        return {"optimizer": self.optimizer.state_dict()}

    def restore_server(self, state: dict[str, Any]) -> None:
        """Load what state_of_server() returned."""
        self.restore_optimizer(state["optimizer"])

    def _add_up_slices(self, squares: Tensor) -> Any:
        """On a server, return the sum over the slices of all servers, which update together."""
        all_squares = squares.repeat(len(self.servers))
        exchanges = [
            exchange
            for server, theirs in zip(self.servers, all_squares.split(1), strict=True)
            if server != self.world.rank
            for exchange in (
                self.world.receive(theirs, server, SQUARES),
                self.world.send(squares, server, SQUARES),
            )
        ]
        for exchange in exchanges:
            exchange.wait()
        return all_squares.sum()

    def close(self) -> None:
        if self.world.rank == 0:
            for server in self.servers:
                self.request(server, STOP)

    def request(self, server: int, kind: int, lr: float = 0.0, version: int = 0) -> None:
        """Send a request to a server."""
        message = torch.tensor([kind, lr, version], dtype=torch.float64)
        self.world.send(message, server).wait()

    def ask(self, server: int, kind: int) -> Any:
        """Send a request to a server and return its answer."""
        self.request(server, kind)
        return self.world.receive_value(server)

    def requests(self) -> Any:
        """Yield (worker, kind, lr, version) of each request until STOP; answer those for STATE."""
        message = torch.empty(3, dtype=torch.float64)
        while True:
            self.world.clock.enter("wait")
            worker = self.world.receive_from_any(message)
            kind, lr, version = message.tolist()
            if kind == STOP:
                return
            if kind == STATE:
                self.world.send_value(self.state_of_server(), worker)
            else:
                yield worker, kind, lr, int(version)
