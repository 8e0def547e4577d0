"""The nodes of one training: how their launchers find each other, and talk.

On each node a launcher forks that node's ranks and watches over them. Node 0 writes a file, in the
run's own folder on the file system that all share, with its addresses, a port that the system chose
and a secret; the others connect to it. Both sides prove that they know the secret (HMAC, as
multiprocessing.connection does it), so nobody joins whom the file system does not let read the
file, and a launcher that comes upon the file of an earlier attempt is turned away.
"""

import contextlib
import json
import multiprocessing
import platform
import secrets
import socket
import struct
import time
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path

import psutil

from allcores.parallel.failures import RankFailedError

JOINING = 300.0  # seconds within which all nodes must have come: their Pythons start at leisure
ANSWERING = 5.0  # seconds within which the other side must prove who it is
LOOPBACK = "127."
COLLECTED = "collected"  # the first word of a message of collect()


@dataclass
class Link:
    """The connection to the launcher of another node.

    Attributes:
        heard: when it was last heard of (CLOCK_MONOTONIC, seconds).
        signs: supervision.Sign of each of its ranks.
        is_done: whether all its ranks have ended well.
    """

    connection: connection.Connection
    node: int
    host: str
    heard: float = field(default_factory=time.monotonic)
    signs: list = field(default_factory=list)
    is_done: bool = False

    @property
    def title(self):
        return f"node {self.node} ({self.host})"

    def send(self, *message):
        """Send a message; whether the other side is still there shows when it is waited for."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def receive(self):
        """The next message.

        Raises:
            RankFailedError: the launcher at the other end has ended.
        """
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            raise RankFailedError(f"{self.title} is gone: its launcher has ended") from None
        self.heard = time.monotonic()
        return message

    def receive_collected(self):
        """What the other side has collect()ed; messages of an earlier time are passed over."""
        while True:
            what, *rest = self.receive()
            if what == COLLECTED:
                return rest[0]


@dataclass
class Nodes:
    """This launcher's node among those of its run.

    Attributes:
        count: how many there are.
        node: which one this is, from 0.
        links: on node 0 to all others; on these to node 0.
        address: of this node, by which it and node 0 reach each other.
    """

    count: int = 1
    node: int = 0
    links: list = field(default_factory=list)
    address: str = ""

    @property
    def interface(self):
        """The network interface that has the address."""
        return next(name for name, addresses in _addresses().items() if self.address in addresses)

    def share(self, value=None):
        """What node 0 has for `value`, on every node.

        Raises:
            RankFailedError: a launcher has ended.
        """
        if self.node:
            return self.links[0].receive()
        for link in self.links:
            link.connection.send(value)
        return value

    def collect(self, value):
        """On node 0 what all nodes have for `value`, in their order; None on the others.

        Raises:
            RankFailedError: a launcher has ended.
        """
        if self.node:
            self.links[0].connection.send((COLLECTED, value))
            return None
        return [value, *(link.receive_collected() for link in self.links)]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        for link in self.links:
            link.connection.close()


def meet(count, node, file, interface=None, seconds=JOINING):
    """Find the launchers of the other nodes; returns the Nodes.

    Args:
        count, node: how many there are, and which one this is.
        file: by which they find each other, on a file system that all share.
        interface: the network interface to use; None: whichever they reach each other by.
        seconds: after which it is given up.

    Raises:
        RankFailedError: they do not find each other in time.
        ValueError: there is no such interface here.
    """
    if count == 1:
        return Nodes()
    file, deadline = Path(file), time.monotonic() + seconds
    if node == 0:
        return _receive_all(count, file, _own(interface), deadline)
    return _call(count, node, file, interface, deadline)


def _receive_all(count, file, addresses, deadline):
    """Node 0: publish where it is and wait for the others."""
    secret = secrets.token_hex(16)
    links, address = {}, None
    # Without a choice of interface it does not know yet by which address it is reached.
    place = addresses[0] if len(addresses) == 1 else ""
    with socket.create_server((place, 0), backlog=count) as listener:
        told = {"addresses": addresses, "port": listener.getsockname()[1], "secret": secret}
        _publish(told, file)
        try:
            while len(links) < count - 1:
                listener.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    caller, _ = listener.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, count)) - set(links))
                    raise RankFailedError(
                        f"node {', '.join(map(str, missing))} of {count} did not come; node 0 "
                        f"({platform.node()}) was waiting at {', '.join(addresses)}"
                    ) from None
                ours = caller.getsockname()[0]
                link = _proved(caller, secret, first=True)
                if link:
                    who = link.recv()
                    links[who["node"]] = Link(link, who["node"], who["host"])
                    address = address or ours
                    link.send({"host": platform.node()})
        finally:
            file.unlink(missing_ok=True)
    return Nodes(count, 0, [links[node] for node in sorted(links)], address)


def _publish(told, file):
    """Write a file that nobody else may read, at once."""
    beside = file.with_stem(f"{file.stem}-part")
    beside.unlink(missing_ok=True)
    beside.touch(mode=0o600)
    beside.write_text(json.dumps(told))
    beside.replace(file)


def _call(count, node, file, interface, deadline):
    """Another node: look for node 0 until it is found."""
    problem = f"there is no {file}"
    ours = (_own(interface)[0], 0) if interface else None
    while time.monotonic() < deadline:
        try:
            told = json.loads(file.read_text())
        except (FileNotFoundError, ValueError):  # not yet
            told = {"addresses": []}
        for address in told["addresses"]:
            try:
                caller = socket.create_connection((address, told["port"]), ANSWERING, ours)
            except OSError as error:
                problem = f"{address}, port {told['port']}: {error}"
                continue
            own = caller.getsockname()[0]
            link = _proved(caller, told["secret"], first=False)
            if link:
                link.send({"node": node, "host": platform.node()})
                return Nodes(count, node, [Link(link, 0, link.recv()["host"])], own)
            problem = f"{address}, port {told['port']}: somebody else is there"
        time.sleep(0.1)
    raise RankFailedError(f"node {node} ({platform.node()}) did not find node 0: {problem}")


def _proved(caller, secret, first):
    """The connection, once both sides have proved that they know the secret; None: they do not."""
    caller.setblocking(True)
    seconds = struct.pack("ll", int(ANSWERING), 0)
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link = connection.Connection(caller.detach())
    steps = [connection.deliver_challenge, connection.answer_challenge]
    try:
        for step in steps if first else reversed(steps):
            step(link, secret.encode())
    except (multiprocessing.AuthenticationError, EOFError, OSError):
        link.close()
        return None
    with socket.socket(fileno=link.fileno()) as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
        again.detach()
    return link


def _own(interface):
    """This node's addresses, those of the loopback interface last; of one interface if asked."""
    known = _addresses()
    if interface is not None and not known.get(interface):
        raise ValueError(
            f"interface: found {interface!r}; {platform.node()} has {', '.join(known)}"
        )
    names = [interface] if interface else known
    found = [address for name in names for address in known[name]]
    return sorted(found, key=lambda address: address.startswith(LOOPBACK))


def _addresses():
    """Network interface -> its IPv4 addresses, of those that are up and have one."""
    up = psutil.net_if_stats()
    found = {
        name: [each.address for each in entries if each.family == socket.AF_INET]
        for name, entries in psutil.net_if_addrs().items()
    }
    return {name: addresses for name, addresses in found.items() if addresses and up[name].isup}
