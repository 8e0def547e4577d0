"""Cores of the machine, leased for one run: no two runs that are going on have the same."""

import contextlib
import os
import re
import socket
from collections import defaultdict
from pathlib import Path

SYSTEM = Path("/sys/devices/system/cpu")
SOCKETS = Path("/proc/net/unix")
# An abstract socket of this name is the lock of a core: it exists as long as a process holds it,
# leaves no file behind, and is seen by every user of the machine (unix(7)).
NAME = "allcores-core-{}"


@contextlib.contextmanager
def leased(count):
    """Keep this process, and what it forks, to `count` cores that no other run has meanwhile.

    Yields:
        Their numbers, those for neighbouring ranks side by side; None where so many were not free:
        the system decides then which process runs where.
    """
    before = os.sched_getaffinity(0)
    locks = {}
    while True:
        free = before - _taken()
        chosen = choose(free, count, topology(free)) if len(free) >= count else None
        for core in chosen or []:
            locks[core] = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if all(_acquire(lock, core) for core, lock in locks.items()):
            break
        _release(locks)  # another run was faster; look again
    try:
        os.sched_setaffinity(0, chosen or before)
        yield chosen
    finally:
        os.sched_setaffinity(0, before)
        _release(locks)


def _taken():
    names = re.findall(NAME.format(r"(\d+)") + "$", SOCKETS.read_text(), re.MULTILINE)
    return set(map(int, names))


def _acquire(lock, core):
    try:
        lock.bind("\0" + NAME.format(core))
    except OSError:
        return False
    return True


def _release(locks):
    for lock in locks.values():
        lock.close()
    locks.clear()


def topology(cpus):
    """cpu -> (NUMA node, core within the machine), as the kernel tells it."""
    return {cpu: (_node(cpu), _siblings(cpu)) for cpu in cpus}


def _node(cpu):
    nodes = [int(link.name[4:]) for link in (SYSTEM / f"cpu{cpu}").glob("node[0-9]*")]
    return nodes[0] if nodes else 0


def _siblings(cpu):
    file = SYSTEM / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    return int(re.match(r"\d+", file.read_text())[0]) if file.exists() else cpu


def choose(free, count, places):
    """`count` of the free cpus: on one NUMA node if one has so many, the fullest that has.

    Within a node one hardware thread of each core, as long as there are cores enough; else whole
    cores, both siblings side by side.

    Args:
        free: numbers of cpus.
        places: what topology() gave.
    """
    nodes = defaultdict(list)
    for cpu in free:
        nodes[places[cpu][0]].append(cpu)
    fitting = [node for node in nodes.values() if len(node) >= count]
    largest_first = sorted(nodes.values(), key=len, reverse=True)
    chosen = []
    for node in [min(fitting, key=len)] if fitting else largest_first:
        chosen += _within_a_node(node, count - len(chosen), places)
    return chosen


def _within_a_node(free, count, places):
    cores = defaultdict(list)
    for cpu in sorted(free):
        cores[places[cpu][1]].append(cpu)
    # Cores of which nothing is in use come first.
    whole_first = sorted(cores.values(), key=lambda core: (-len(core), core))
    if count <= len(whole_first):
        return [core[0] for core in whole_first[:count]]
    return [cpu for core in whole_first for cpu in core][:count]
