"""Where the processes of a run find each other's addresses."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from allcores.parallel.nodes import JOINING

if TYPE_CHECKING:
    from allcores.parallel.nodes import Nodes
    from allcores.parallel.world import World


@dataclass(frozen=True)
class LocalRendezvous:
    """A file without a name: on one machine everything stays on the loopback interface.

    Attributes:
        file: descriptor from memfd_create(2). Nothing is left of it, however the run ends.
    """

    file: int
    interface: str = "lo"

    @classmethod
    def create(cls, nodes: Nodes) -> Any:
        return cls(os.memfd_create("allcores-rendezvous"))

    def store(self, world: World) -> Any:
        return dist.FileStore(f"/proc/self/fd/{self.file}", world.size)

    def close(self) -> None:
        os.close(self.file)


@dataclass(frozen=True)
class RendezvousOverNodes:
    """torch's TCPStore, served by rank 0 on a port chosen by the system.

    The store does not authenticate clients. Its keys begin with a secret, so that no process uses
    another run's store by mistake. This does not keep out somebody who listens on the network.

    Attributes:
        address, port: of the store.
        secret: known to the launchers of this run.
        file: descriptor of the listening socket on node 0.
    """

    address: str
    port: int
    secret: str
    file: int | None
    interface: str | None

    @classmethod
    def create(cls, nodes: Nodes) -> Any:
        """Create the rendezvous on every launcher; node 0 sends its address to the others."""
        listener: socket.socket | None = None
        if nodes.node == 0:
            listener = socket.create_server((nodes.address, 0), backlog=1024)
            values = (nodes.address, listener.getsockname()[1], secrets.token_hex(16))
        address, port, secret = nodes.share(values if listener else None)
        file = listener.detach() if listener else None
        return cls(address, port, secret, file, nodes.interface)

    def store(self, world: World) -> Any:
        is_master = world.rank == 0
        store = dist.TCPStore(
            self.address,
            self.port,
            is_master=is_master,
            timeout=timedelta(seconds=JOINING),
            wait_for_workers=False,
            # TCPStore by itself would listen on all interfaces.
            master_listen_fd=os.dup(self.file) if is_master and self.file is not None else None,
        )
        return dist.PrefixStore(self.secret, store)

    def close(self) -> None:
        if self.file is not None:
            os.close(self.file)
