"""The nodes of a run: how their launchers find each other and communicate.

On each node, a launcher forks that node's ranks and watches them. Node 0 writes a file to the run's
own folder on the shared file system. It contains the addresses of node 0, a port chosen by the
system, and a token. Both sides prove that they know it, without sending it. So only those who
can read the file join, and a launcher that reads the file of an earlier attempt is turned away. The
messages, which are pickled, are not encrypted.

torch's TCPStore cannot replace these connections: while node 0 hangs, its calls do not return,
whatever their timeout.
"""

from __future__ import annotations

import hmac
import json
import os
import platform
import secrets
import socket
import time
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

import psutil

INTERFACE = "GLOO_SOCKET_IFNAME"  # gloo's variable for the network interface
JOINING = 300.0  # seconds within which all nodes must have joined: Python may start slowly
CONNECTING = 3.0  # seconds to reach an address, and to greet before node 0 takes the next
ANSWERING = 12.0  # seconds within which node 0 must answer, which strangers may keep busy
GREETING = 256  # bytes in which each side sends its number, its host and what proves the token
LOOPBACK = "127."


@dataclass
class Link:
    """The connection to the launcher of another node; a message is a kind and a value.

    Attributes:
        unheard: seconds for which this launcher has received no message.
        signs: supervision.Sign of each rank of the other node.
        is_done: whether all ranks of the other node have ended well.
    """

    connection: connection.Connection
    node: int
    host: str
    unheard: float = 0.0
    signs: list = field(default_factory=list)
    is_done: bool = False

    @property
    def title(self) -> str:
        return f"node {self.node} ({self.host})"

    def send(self, kind: str, value: Any = None) -> None:
        """Send a message.

        Raises:
            ConnectionError: the launcher at the other end has ended.
        """
        try:
            self.connection.send((kind, value))
        except OSError:
            raise self._gone() from None

    def receive(self) -> tuple[str, Any]:
        """Return the next message, (kind, value).

        Raises:
            ConnectionError: the launcher at the other end has ended.
        """
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            raise self._gone() from None
        self.unheard = 0.0
        return kind, value

    def wait_for(self, awaited: str) -> Any:
        """Return the value of the next message of a kind, skipping others."""
        while True:
            kind, value = self.receive()
            if kind == awaited:
                return value

    def _gone(self) -> ConnectionError:
        return ConnectionError(f"{self.title} is gone: its launcher has ended")


@dataclass
class Nodes:
    """The nodes of a run, as this node's launcher sees them.

    Attributes:
        count: number of nodes.
        node: number of this one, from 0.
        links: on node 0, to all others; on the others, to node 0.
        address: that of this node, by which it and node 0 reach each other.
    """

    count: int = 1
    node: int = 0
    links: list = field(default_factory=list)
    address: str = ""

    @property
    def interface(self) -> str:
        """The network interface that has the address."""
        return next(name for name, addresses in _addresses().items() if self.address in addresses)

    def share(self, value: Any = None) -> Any:
        """Return node 0's `value` on every node.

        Raises:
            ConnectionError: a launcher has ended.
        """
        if self.node:
            return self.links[0].wait_for("shared")
        for link in self.links:
            link.send("shared", value)
        return value

    def collect(self, value: Any) -> Any:
        """Return the `value` of every node, in order, on node 0; None on the others.

        Raises:
            ConnectionError: a launcher has ended.
        """
        if self.node:
            self.links[0].send("collected", value)
            return None
        return [value, *(link.wait_for("collected") for link in self.links)]

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        for link in self.links:
            link.connection.close()


def meet(count: int, node: int, file: Any, seconds: float = JOINING) -> Nodes:
    """Find the launchers of the other nodes, and return the Nodes.

    Like gloo, they use the network interface that the variable GLOO_SOCKET_IFNAME names; without
    it, any that connects them.

    Args:
        count, node: number of nodes, and number of this one.
        file: file by which they find each other, on a file system that all share.
        seconds: how long to try.

    Raises:
        TimeoutError: they do not find each other in time.
        ValueError: there is no such interface here.
    """
    if count == 1:
        return Nodes()
    file, deadline = Path(file), time.monotonic() + seconds
    interface = os.environ.get(INTERFACE)
    if node == 0:
        return _receive_all(count, file, _own_addresses(interface), deadline)
    return _call(count, node, file, interface, deadline)


def _receive_all(count: int, file: Any, addresses: list[str], deadline: float) -> Nodes:
    """On node 0: publish its addresses and wait for the others."""
    token = secrets.token_hex(16)
    links: dict[int, Link] = {}
    address: str | None = None
    # Without a chosen interface, it is not known yet at which address the others reach node 0.
    place = addresses[0] if len(addresses) == 1 else ""
    with socket.create_server((place, 0), backlog=count) as listener:
        _publish({"addresses": addresses, "port": listener.getsockname()[1], "token": token}, file)
        try:
            while len(links) < count - 1:
                listener.settimeout(max(0.01, deadline - time.monotonic()))
                caller, _ = listener.accept()
                caller.settimeout(CONNECTING)
                own_address = caller.getsockname()[0]
                link = _greet(caller, token, 0)
                if link:
                    links[link.node], address = link, address or own_address
        except TimeoutError:
            missing = sorted(set(range(1, count)) - set(links))
            raise TimeoutError(
                f"node {', '.join(map(str, missing))} of {count} did not join; node 0 "
                f"({platform.node()}) was waiting at {', '.join(addresses)}"
            ) from None
        finally:
            file.unlink(missing_ok=True)
    return Nodes(count, 0, [links[node] for node in sorted(links)], address or "")


def _publish(content: Any, file: Any) -> None:
    """Atomically write a file that no other user may read."""
    part = file.with_stem(f"{file.stem}-part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_text(json.dumps(content))
    part.replace(file)


def _call(count: int, node: int, file: Any, interface: str | None, deadline: float) -> Nodes:
    """On another node: connect to node 0, retrying until the deadline."""
    problem = f"there is no {file}"
    source = (_own_addresses(interface)[0], 0) if interface is not None else None
    while time.monotonic() < deadline:
        for address, port, token in _read_published(file):
            try:
                caller = socket.create_connection((address, port), CONNECTING, source)
            except OSError as error:
                problem = f"{address}, port {port}: {error}"
                continue
            caller.settimeout(ANSWERING)
            own_address = caller.getsockname()[0]
            link = _greet(caller, token, node)
            if link:
                return Nodes(count, node, [link], own_address)
            problem = f"{address}, port {port}: another process is listening there"
        time.sleep(0.1)
    raise TimeoutError(f"node {node} ({platform.node()}) did not find node 0: {problem}")


def _read_published(file: Any) -> list[Any]:
    """Return (address, port, token) of each address in the file; [] while it cannot be read."""
    try:
        content = json.loads(file.read_text())
        port, token = int(content["port"]), content["token"]
        return [(address, port, token) for address in content["addresses"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _greet(caller: socket.socket, token: str, node: int) -> Link | None:
    """Greet each other over a socket; return the Link, or None if no right greeting comes in time.

    Args:
        node: number of this node. Node 0 answers last, and only those who know the token.
    """
    nonce = secrets.token_hex(16)

    def greeting(nonce: str) -> bytes:
        told = f"{node} {nonce} {platform.node()}"
        return f"{_proof(token, told)} {told}".encode().ljust(GREETING)

    try:
        if node:
            caller.sendall(greeting(nonce))
        # So few bytes arrive together; a stranger's need not be waited for.
        proof, told = caller.recv(GREETING).decode().strip().split(" ", 1)
        number, theirs, host = told.split(" ", 2)
        is_known = hmac.compare_digest(proof, _proof(token, told))
        if not is_known or (int(number) > 0) == (node > 0) or (node and theirs != nonce):
            raise ConnectionError("the proof or the number is not the expected one")
        if node == 0:
            caller.sendall(greeting(theirs))
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        caller.setblocking(True)
        return Link(connection.Connection(caller.detach()), int(number), host)
    except (OSError, ValueError):
        caller.close()
        return None


def _proof(token: str, told: str) -> str:
    """Return what only those can compute who know the token."""
    return hmac.digest(token.encode(), told.encode(), "sha256").hex()


def _own_addresses(interface: str | None) -> list[str]:
    """Return this node's addresses, loopback ones last; only those of an interface, if given."""
    by_interface = _addresses()
    if interface is not None and not by_interface.get(interface):
        raise ValueError(
            f"{INTERFACE}: found {interface!r}; {platform.node()} has {', '.join(by_interface)}"
        )
    names = [interface] if interface else by_interface
    addresses = [address for name in names for address in by_interface[name]]
    return sorted(addresses, key=lambda address: address.startswith(LOOPBACK))


def _addresses() -> dict[str, list[str]]:
    """Return network interface -> its IPv4 addresses, for those that are up and have one."""
    up = psutil.net_if_stats()
    by_name = {
        name: [entry.address for entry in entries if entry.family == socket.AF_INET]
        for name, entries in psutil.net_if_addrs().items()
    }
    return {name: addresses for name, addresses in by_name.items() if addresses and up[name].isup}
