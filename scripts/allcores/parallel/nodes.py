"""The nodes of one training: how their launchers find each other, and talk.

On each node a launcher forks that node's ranks and watches over them. Node 0 writes a file, in the
run's own folder on the file system that all share, with its addresses, a port that the system chose
and a secret; the others connect to it. Both sides prove that they know the secret (HMAC, RFC 2104),
so nobody joins whom the file system does not let read the file, and a launcher that comes upon the
file of an earlier attempt is turned away.
"""

import contextlib
import hmac
import json
import platform
import secrets
import socket
import time
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path

import psutil

from allcores.parallel.failures import RankFailedError

JOINING = 300.0  # seconds within which all nodes must have come: their Pythons start at leisure
ANSWERING = 3.0  # seconds within which the other side must prove who it is
NONCE = 32  # bytes
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

    def deliver(self, message):
        """Send a message to somebody who waits for it.

        Raises:
            RankFailedError: the launcher at the other end has ended.
        """
        try:
            self.connection.send(message)
        except OSError:
            raise self._gone() from None

    def receive(self):
        """The next message.

        Raises:
            RankFailedError: the launcher at the other end has ended.
        """
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            raise self._gone() from None
        self.heard = time.monotonic()
        return message

    def _gone(self):
        return RankFailedError(f"{self.title} is gone: its launcher has ended")

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
            link.deliver(value)
        return value

    def collect(self, value):
        """On node 0 what all nodes have for `value`, in their order; None on the others.

        Raises:
            RankFailedError: a launcher has ended.
        """
        if self.node:
            self.links[0].deliver((COLLECTED, value))
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
                link = _proved(caller, secret, node=0)
                if link:
                    links[link.node] = link
                    address = address or ours
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
    ours = (_own(interface)[0], 0) if interface is not None else None
    while time.monotonic() < deadline:
        for address, port, secret in _published(file):
            try:
                caller = socket.create_connection((address, port), ANSWERING, ours)
            except OSError as error:
                problem = f"{address}, port {port}: {error}"
                continue
            own = caller.getsockname()[0]
            link = _proved(caller, secret, node)
            if link:
                return Nodes(count, node, [link], own)
            problem = f"{address}, port {port}: somebody else is there"
        time.sleep(0.1)
    raise RankFailedError(f"node {node} ({platform.node()}) did not find node 0: {problem}")


def _published(file):
    """(address, port, secret) of each address in the file; [] while there is none to be read."""
    try:
        told = json.loads(file.read_text())
        return [(address, int(told["port"]), told["secret"]) for address in told["addresses"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _proved(caller, secret, node):
    """The Link to who is at the other end of a socket, once both sides have proved that they know
    the secret; None: they do not, or do not say so in time.

    Args:
        node: which one this is. Node 0 asks first.
    """
    deadline = time.monotonic() + ANSWERING
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    mine = secrets.token_bytes(NONCE)
    try:
        caller.sendall(mine)
        theirs = _exactly(caller, NONCE, deadline)
        for_first, for_other = (mine, theirs) if node == 0 else (theirs, mine)
        proofs = [
            hmac.digest(secret.encode(), who + for_first + for_other, "sha256")
            for who in (b"first", b"other")
        ]
        caller.sendall(proofs[0 if node == 0 else 1])
        answer = _exactly(caller, len(proofs[0]), deadline)
        if not hmac.compare_digest(answer, proofs[1 if node == 0 else 0]):
            raise ConnectionError("who is there does not know the secret")
        caller.setblocking(True)
        link = connection.Connection(caller.detach())
        link.send((node, platform.node()))
        if not link.poll(ANSWERING):
            raise ConnectionError("who is there does not say who he is")
        return Link(link, *link.recv())
    except (OSError, EOFError):
        caller.close()
        return None


def _exactly(caller, length, deadline):
    """So many bytes from a socket.

    Raises:
        OSError: they do not come in time.
    """
    received = b""
    while len(received) < length:
        caller.settimeout(max(0.001, deadline - time.monotonic()))
        part = caller.recv(length - len(received))
        if not part:
            raise ConnectionError("the other side has closed the connection")
        received += part
    return received


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
