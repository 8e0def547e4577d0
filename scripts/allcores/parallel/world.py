"""World: a process's view of the others of its run."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from allcores.parallel.clock import Clock
from allcores.parallel.exchange import Exchange
from allcores.parallel.nodes import INTERFACE
from allcores.parallel.pause import Pause
from allcores.parallel.shared_memory import SharedMemory

if TYPE_CHECKING:
    from torch import Tensor


# Timeout of gloo and the barrier: in effect none. The parent ends a run that makes no progress.
COLLECTIVE_TIMEOUT = timedelta(days=7)
# Where struct tcp_info has tcpi_bytes_acked and tcpi_bytes_received (tcp(7), <linux/tcp.h>).
TCP_BYTES = struct.Struct("=120xQQ")


@dataclass
class World:
    """A process's view of the others of its run: ranks 0 .. workers - 1 train, later ones serve.

    Each node has the same number of workers, with successive ranks. Memory and barriers are for the
    processes of one node, messages for all.

    Attributes:
        threads: intra-op threads of this process.
        pins: the cores that this process is pinned to; None: any.
        nodes: number of nodes.
        clock: seconds per phase of this process.
        shared: memory and a lock that all processes of this node share.
        exchange: where the workers of this node meet; a server has none.
        pause: when the workers have to save.
        worker_group: torch's process group of the workers.
        shm_group: the same by the backend `shm`, once it was asked for.
        across_group: process group of the workers with the same rank on their nodes.
    """

    rank: int
    workers: int
    servers: int = 0
    threads: int = 1
    pins: list[int] | None = None
    nodes: int = 1
    clock: Clock = field(default_factory=Clock)
    # A World without others, as in a test or a single process, has none of these.
    shared: SharedMemory = None  # type: ignore[assignment]
    exchange: Exchange = None  # type: ignore[assignment]
    pause: Pause = None  # type: ignore[assignment]
    worker_group: Any = None
    shm_group: Any = None
    across_group: Any = None

    @property
    def size(self) -> int:
        return self.workers + self.servers

    @property
    def is_server(self) -> bool:
        return self.rank >= self.workers

    @property
    def workers_on_node(self) -> int:
        return self.workers // self.nodes

    @property
    def rank_on_node(self) -> int:
        """The rank of a worker among the workers of its node."""
        return self.rank % self.workers_on_node

    def all_reduce(self, tensor: Tensor, group: Any = None) -> Tensor:
        """Sum a tensor over the workers, in place, and return it.

        Args:
            group: which of their process groups to use; None: gloo's.
        """
        if self.workers > 1:
            dist.all_reduce(tensor, group=group or self.worker_group)
        return tensor

    def new_group(self, ranks: Iterable[int], backend: str = "gloo") -> Any:
        """Create another of torch's process groups. Every process has to take part."""
        return dist.new_group(list(ranks), timeout=COLLECTIVE_TIMEOUT, backend=backend)

    def sum(self, number: float) -> float:
        """Return the sum of a number over the workers."""
        return float(self.all_reduce(torch.tensor([number], dtype=torch.float64)))

    def begin_all_reduce_across_nodes(self, tensor: Tensor) -> Any:
        """Start summing a tensor, in place, over the workers with this rank on their nodes.

        Each worker of a node uses separate connections. Call wait() on what this returns.
        """
        return dist.all_reduce(tensor, group=self.across_group, async_op=True)

    def sent_between_nodes(self) -> int:
        """Return how many bytes all workers and servers have sent to other nodes so far."""
        sent, received = _traffic_between_machines()
        # With servers, one end of each connection is a worker's. What workers send each other,
        # losses and the statistics of norm layers, then counts twice, but it is little.
        count = sent + (received if self.servers else 0)
        return int(self.all_reduce(torch.tensor([count])))

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Average tensors over the workers, in place, in one exchange."""
        tensors = list(tensors)
        if self.workers == 1 or not tensors:
            return
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        self.all_reduce(flat).div_(self.workers)
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.detach().copy_(part.view_as(tensor))

    def broadcast(self, value: Any) -> Any:
        """Return the `value` of rank 0, tensors and plain values, on every worker."""
        box = [value]
        if self.workers > 1:
            dist.broadcast_object_list(box, src=0, group=self.worker_group)
        return box[0]

    def gather(self, value: Any) -> list[Any] | None:
        """Return the `value` of every worker, in order, on rank 0; None on the others."""
        values = [value] * self.workers if self.rank == 0 else None
        if self.workers > 1:
            dist.gather_object(value, values, dst=0, group=self.worker_group)
        return values

    def send(self, tensor: Tensor, rank: int, tag: int = 0) -> Any:
        """Start sending a tensor to a rank. wait() on what this returns before changing it."""
        return _all().send([tensor], rank, tag)

    def receive(self, tensor: Tensor, rank: int, tag: int = 0) -> Any:
        """Start receiving a tensor from a rank. wait() on what this returns before using it.

        Tensors of one sender and tag arrive in the order in which they were sent.
        """
        return _all().recv([tensor], rank, tag)

    def receive_from_any(self, tensor: Tensor) -> int:
        """Receive a tensor with tag 0 from any rank, and return that rank."""
        return dist.recv(tensor)

    def send_value(self, value: Any, rank: int) -> None:
        """Send plain values and tensors."""
        dist.send_object_list([value], rank)

    def receive_value(self, rank: int) -> Any:
        box = [None]
        dist.recv_object_list(box, rank)
        return box[0]

    def barrier_on_node(self) -> None:
        """Wait for the workers of this node. Each then sees what all wrote to shared memory."""
        self.exchange.meet()

    def barrier(self) -> None:
        """Wait for all workers. Those of a node then see what all wrote to shared memory."""
        self.barrier_on_node()
        if self.nodes > 1:
            if self.rank_on_node == 0:
                dist.barrier(self.across_group)
            self.barrier_on_node()

    def join(self, rendezvous: Any) -> None:
        """Create the gloo process groups, on ports chosen by the system.

        Args:
            rendezvous: a rendezvous.LocalRendezvous or RendezvousOverNodes.
        """
        os.environ[INTERFACE] = rendezvous.interface
        dist.init_process_group(
            "gloo",
            store=rendezvous.store(self),
            rank=self.rank,
            world_size=self.size,
            timeout=COLLECTIVE_TIMEOUT,
        )
        self.worker_group = dist.group.WORLD
        if self.servers:
            self.worker_group = self.new_group(range(self.workers))
        if self.nodes > 1:
            # Every process has to take part in making every group.
            across = [
                self.new_group(range(first, self.workers, self.workers_on_node))
                for first in range(self.workers_on_node)
            ]
            self.across_group = None if self.is_server else across[self.rank_on_node]
        # A rank that is connected to all others may still leave before they are connected to
        # each other, and gloo would take that for a crash.
        dist.barrier()


def _all() -> Any:
    """Return the process group of all ranks."""
    return dist.group.WORLD


def _traffic_between_machines() -> tuple[int, int]:
    """Return (sent, received): bytes over this process's open TCP connections to other machines.

    The kernel counts them.
    """
    sent = received = 0
    for file in Path("/proc/self/fd").iterdir():
        try:
            is_socket = os.readlink(file).startswith("socket:")  # noqa: PTH115 - no such path
        except FileNotFoundError:  # the descriptor that read the folder itself
            continue
        if not is_socket:
            continue
        with socket.socket(fileno=os.dup(int(file.name))) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            try:
                other = connection.getpeername()[0]
            except OSError:  # a listening socket
                continue
            if other != connection.getsockname()[0]:  # within a machine, both addresses are equal
                information = connection.getsockopt(
                    socket.IPPROTO_TCP, socket.TCP_INFO, TCP_BYTES.size
                )
                acknowledged, arrived = TCP_BYTES.unpack(information)
                sent, received = sent + acknowledged, received + arrived
    return sent, received
