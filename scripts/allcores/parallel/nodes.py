"""The nodes of one training: how their launchers find each other, and talk.

On each node a launcher forks that node's ranks and watches over them. Node 0 writes a file, in the
run's own folder on the file system that all share, with its addresses, a port that the system chose
and a secret; the others connect to it. Both sides prove that they know the secret (HMAC, RFC 2104),
so only those who may read the file can join, and a launcher that reads the file of an earlier
attempt is turned away.
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
from allcores.parallel.messages import Collected

JOINING = 300.0  # seconds within which all nodes must have joined: Python may start slowly
ANSWERING = 3.0  # seconds within which the other side must prove who it is
NONCE = 32  # bytes
LOOPBACK = "127."


@dataclass
class Link:
    """The connection to the launcher of another node.

    Attributes:
        unheard: seconds for which this launcher has looked for a message in vain.
        signs: messages.Sign of each of its ranks.
        is_done: whether all its ranks have ended well.
    """

    connection: connection.Connection
    node: int
    host: str
    unheard: float = 0.0
    signs: list = field(default_factory=list)
    is_done: bool = False

    @property
    def title(self):
        return f"node {self.node} ({self.host})"

    def send(self, message):
        """Send a message; if the other side is gone, that shows when a message is expected."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    def deliver(self, message):
        """Send a message that the other side is waiting for.

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
        self.unheard = 0.0
        return message

    def _gone(self):
        return RankFailedError(f"{self.title} is gone: its launcher has ended")

    def receive_collected(self):
        """The value that the other side gave to collect(); earlier messages are skipped."""
        while True:
            message = self.receive()
            if isinstance(message, Collected):
                return message.value


@dataclass
class Nodes:
    """This launcher's node among those of its run.

    Attributes:
        count: how many there are.
        node: which one this is, from 0.
        links: on node 0 to all others; on the others to node 0.
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
        """The `value` of node 0, on every node.

        Raises:
            RankFailedError: a launcher has ended.
        """
        if self.node:
            return self.links[0].receive()
        for link in self.links:
            link.deliver(value)
        return value

    def collect(self, value):
        """On node 0 the `value` of every node, in their order; None on the others.

        Raises:
            RankFailedError: a launcher has ended.
        """
        if self.node:
            self.links[0].deliver(Collected(value))
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
        count, node: number of nodes, and the number of this one.
        file: the file by which they find each other, on a file system that all share.
        interface: the network interface to use; None: any that connects them.
        seconds: how long to try.

    Raises:
        RankFailedError: they do not find each other in time.
        ValueError: there is no such interface here.
    """
    if count == 1:
        return Nodes()
    file, deadline = Path(file), time.monotonic() + seconds
    if node == 0:
        return _receive_all(count, file, _own_addresses(interface), deadline)
    return _call(count, node, file, interface, deadline)


def _receive_all(count, file, addresses, deadline):
    """On node 0: publish its addresses and wait for the others."""
    secret = secrets.token_hex(16)
    links, address = {}, None
    # If no interface is chosen, it is not known yet at which address the others reach node 0.
    place = addresses[0] if len(addresses) == 1 else ""
    with socket.create_server((place, 0), backlog=count) as listener:
        content = {"addresses": addresses, "port": listener.getsockname()[1], "secret": secret}
        _publish(content, file)
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
                own_address = caller.getsockname()[0]
                link = _authenticate(caller, secret, node=0)
                if link:
                    links[link.node] = link
                    address = address or own_address
        finally:
            file.unlink(missing_ok=True)
    return Nodes(count, 0, [links[node] for node in sorted(links)], address)


def _publish(content, file):
    """Write a file that no other user may read, atomically."""
    part = file.with_stem(f"{file.stem}-part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_text(json.dumps(content))
    part.replace(file)


def _call(count, node, file, interface, deadline):
    """On another node: look for node 0 until it is found."""
    problem = f"there is no {file}"
    source = (_own_addresses(interface)[0], 0) if interface is not None else None
    while time.monotonic() < deadline:
        for address, port, secret in _read_published(file):
            try:
                caller = socket.create_connection((address, port), ANSWERING, source)
            except OSError as error:
                problem = f"{address}, port {port}: {error}"
                continue
            own_address = caller.getsockname()[0]
            link = _authenticate(caller, secret, node)
            if link:
                return Nodes(count, node, [link], own_address)
            problem = f"{address}, port {port}: somebody else is there"
        time.sleep(0.1)
    raise RankFailedError(f"node {node} ({platform.node()}) did not find node 0: {problem}")


def _read_published(file):
    """(address, port, secret) of each address in the file; [] while there is none to be read."""
    try:
        content = json.loads(file.read_text())
        port, secret = int(content["port"]), content["secret"]
        return [(address, port, secret) for address in content["addresses"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _authenticate(caller, secret, node):
    """The Link to the other end of a socket, once both sides have proved that they know the secret;
    None: they did not do so in time.

    Args:
        node: number of this node.
    """
    deadline = time.monotonic() + ANSWERING
    caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    mine = secrets.token_bytes(NONCE)
    try:
        caller.sendall(mine)
        theirs = _receive_exactly(caller, NONCE, deadline)
        for_first, for_other = (mine, theirs) if node == 0 else (theirs, mine)
        proofs = [
            hmac.digest(secret.encode(), role + for_first + for_other, "sha256")
            for role in (b"first", b"other")
        ]
        caller.sendall(proofs[0 if node == 0 else 1])
        answer = _receive_exactly(caller, len(proofs[0]), deadline)
        if not hmac.compare_digest(answer, proofs[1 if node == 0 else 0]):
            raise ConnectionError("the other side does not know the secret")
        caller.setblocking(True)
        link = connection.Connection(caller.detach())
        link.send((node, platform.node()))
        if not link.poll(ANSWERING):
            raise ConnectionError("the other side does not say who it is")
        return Link(link, *link.recv())
    except (OSError, EOFError):
        caller.close()
        return None


def _receive_exactly(caller, length, deadline):
    """Receive `length` bytes from a socket.

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


def _own_addresses(interface):
    """The addresses of this node, loopback ones last; only those of an interface, unless None."""
    by_interface = _addresses()
    if interface is not None and not by_interface.get(interface):
        raise ValueError(
            f"interface: found {interface!r}; {platform.node()} has {', '.join(by_interface)}"
        )
    names = [interface] if interface else by_interface
    addresses = [address for name in names for address in by_interface[name]]
    return sorted(addresses, key=lambda address: address.startswith(LOOPBACK))


def _addresses():
    """Network interface -> its IPv4 addresses, of those that are up and have one."""
    up = psutil.net_if_stats()
    by_name = {
        name: [entry.address for entry in entries if entry.family == socket.AF_INET]
        for name, entries in psutil.net_if_addrs().items()
    }
    return {name: addresses for name, addresses in by_name.items() if addresses and up[name].isup}
