"""Leases of cores: no two runs have the same core at the same time."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from allcores.machine import cores

SYSTEM = Path("/sys/devices/system/cpu")
SOCKETS = Path("/proc/net/unix")
# A setting that exists only in the network namespace that the machine booted with.
OF_FIRST_NETWORK = Path("/proc/sys/net/core/dev_weight")
# An abstract socket of this name is the lock of a core. It exists as long as a process holds it,
# leaves no file behind, and is visible to every user of the machine, but not in other containers
# (unix(7)).
NAME = "allcores-core-{}"

# The cores of a NUMA node that are free, and those that are partly free, as lists of free cpus.
Cores = tuple[list[list[int]], list[list[int]]]


@contextlib.contextmanager
def leased(count: int) -> Iterator[list[int] | None]:
    """Pin this process and those forked from it to `count` cores that no other run has leased.

    The lease ends with the last of these processes, however it ends.

    Yields:
        The numbers of the cores, those of neighbouring ranks side by side. None, without pinning,
        if fewer are free, if nothing says which cores are this job's, as under a CPU quota, or in a
        container's own network namespace, where runs do not see each other's leases.
    """
    before = os.sched_getaffinity(0)
    chosen: list[int] | None = None
    locks: list[socket.socket] = []
    obstacle = _obstacle(before)
    if not obstacle:
        chosen = _take(count, before, locks)
        obstacle = "" if chosen else f"fewer than {count} are free" if count > 1 else "none is free"
    if obstacle:
        print(f"not pinned to cores: {obstacle}", flush=True)
    try:
        os.sched_setaffinity(0, chosen or before)
        yield chosen
    finally:
        os.sched_setaffinity(0, before)
        _release(locks)


def _take(count: int, allowed: set[int], locks: list[socket.socket]) -> list[int] | None:
    """Choose and lock free cores, retrying if another run was faster. None: too few are free."""
    places = topology(allowed)
    while True:
        free = allowed - _leased_cores()
        if len(free) < count:
            return None
        chosen = choose(free, count, places)
        if all(_lock(core, locks) for core in chosen):
            return chosen
        _release(locks)


def _obstacle(cpus: set[int]) -> str:
    """Return why no run can lease some of these cpus, "" if one can."""
    if cores.allowed() < len(cpus):
        return f"{cores.allowed()} of {len(cpus)} are allowed, whichever they are"
    if not SOCKETS.exists():
        return f"there is no {SOCKETS}"
    if not OF_FIRST_NETWORK.exists():
        return "this container has its own network, so it does not see the leases of others"
    return ""


def _leased_cores() -> set[int]:
    names = re.findall(NAME.format(r"(\d+)") + "$", SOCKETS.read_text(), re.MULTILINE)
    return set(map(int, names))


def _lock(core: int, locks: list[socket.socket]) -> bool:
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    locks.append(lock)
    try:
        lock.bind("\0" + NAME.format(core))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def _release(locks: list[socket.socket]) -> None:
    for lock in locks:
        lock.close()
    locks.clear()


def topology(cpus: set[int]) -> dict[int, tuple[int, int]]:
    """Return cpu -> (NUMA node, core within the machine), from the kernel."""
    return {cpu: (_node(cpu), _core(cpu)) for cpu in cpus}


def _node(cpu: int) -> int:
    nodes = [int(link.name[4:]) for link in (SYSTEM / f"cpu{cpu}").glob("node[0-9]*")]
    return nodes[0] if nodes else 0


def _core(cpu: int) -> int:
    """Return the core of a cpu, as the number of its first hardware thread."""
    file = SYSTEM / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    return int(re.split(r"\D", file.read_text())[0]) if file.exists() else cpu


def choose(free: set[int], count: int, places: dict[int, tuple[int, int]]) -> list[int]:
    """Choose `count` of the free cpus, on one NUMA node if one has enough.

    Takes one hardware thread of each completely free core if there are enough of these, otherwise
    all free threads of cores, siblings side by side. Among nodes that fit equally well, it takes
    the fullest.

    Args:
        free: numbers of the free cpus.
        places: topology() of these and of those in use.
    """
    nodes: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for cpu in sorted(free):
        node, core = places[cpu]
        nodes[node][core].append(cpu)
    threads_of = Counter(places.values())
    by_node = []
    for node, cpus_of in nodes.items():
        complete = [cpus for core, cpus in cpus_of.items() if len(cpus) == threads_of[node, core]]
        partial = [cpus for cpus in cpus_of.values() if cpus not in complete]
        by_node.append((complete, partial))

    def room(node: Cores) -> int:
        return sum(len(cpus) for cpus in chain(*node))

    fitting = [each for each in by_node if room(each) >= count]
    if fitting:
        best = min(fitting, key=lambda each: (len(each[0]) < count, room(each)))
        return _within(best, count)
    chosen: list[int] = []
    for each in sorted(by_node, key=room, reverse=True):
        chosen += _within(each, count - len(chosen))
    return chosen


def _within(node: Cores, count: int) -> list[int]:
    complete, partial = node
    if count <= len(complete):
        return [core[0] for core in complete[:count]]
    return list(chain(*complete, *partial))[:count]
