"""How processes that only share a store of torch get memory in common, and notice who has ended."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import socket
from pathlib import Path
from typing import Any, NamedTuple

from allcores.parallel import exchange
from allcores.parallel.exchange import Exchange, LostRankError

# Bytes of a row: two of every rank stay in a processor's cache.
ROW = 1 << 19


class Process(NamedTuple):
    """What a rank says of itself.

    Attributes:
        machine: see machine().
        number: its process id.
        cores: those that it may use; it may be pinned to its own.
    """

    machine: str
    number: int
    cores: list[int]


def machine() -> str:
    """Return a text that is equal in processes that can share memory.

    They have one kernel, one user and group, and one namespace of process ids, which show who has
    ended.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    spaces = [Path(f"/proc/self/ns/{kind}").readlink() for kind in ("user", "pid")]
    return f"{socket.gethostname()} {boot} {spaces} {os.getuid()} {os.getgid()}"


def processes(store: Any, rank: int, size: int) -> list[Process]:
    """Return the process of each rank."""
    own = Process(machine(), os.getpid(), sorted(os.sched_getaffinity(0)))
    store.set(f"process of rank {rank}", json.dumps(own))
    return [Process(*json.loads(store.get(f"process of rank {other}"))) for other in range(size)]


class JoinedExchange(Exchange):
    """An Exchange of processes that were started apart from each other.

    The first rank creates an anonymous file, which the others open by its place in /proc. So
    nothing can be left in /dev/shm, and its size does not matter.

    Args:
        store: torch's store, only for this group and machine.
        ranks: the process of each rank of the group on this machine, in order.
        rank: that of this process.
        timeout: seconds to wait for the others.

    Raises:
        LostRankError: the other ranks did not join in time.
    """

    def __init__(self, store: Any, ranks: dict[int, Process], rank: int, timeout: float) -> None:
        self.process, self.is_open = os.getpid(), False
        self.files: dict[int, int] = {}  # place -> descriptor of its process
        cores = {core for process in ranks.values() for core in process.cores}
        file = _file(store, exchange.size_of(len(ranks), ROW), min(ranks), rank)
        try:
            super().__init__(
                mmap.mmap(file, 0),
                [*ranks],
                [*ranks].index(rank),
                spin=exchange.SPIN if len(ranks) <= len(cores) else 0,
                timeout=timeout,
                row=ROW,
            )
            self.is_open = True
            for place, process in enumerate(ranks.values()):
                # It may have ended, or a sandbox may refuse this; then the timeout remains.
                with contextlib.suppress(OSError):
                    self.files[place] = os.pidfd_open(process.number)
            self.meet()  # every rank has the memory
        except BaseException:
            self.close()
            raise
        finally:
            os.close(file)

    def check_process(self) -> None:
        """Raise an error if this process cannot run a collective of the group."""
        if os.getpid() != self.process:
            raise RuntimeError(
                "this process was forked from one that has joined a group of the backend shm; "
                "each process has to call init_process_group() itself"
            )
        if not self.is_open:
            raise RuntimeError("the process group was destroyed")

    def close(self) -> None:
        """Leave the group, which the others notice."""
        if self.is_open:
            self.is_open = False
            if os.getpid() == self.process:
                self.ranks[self.place].left = 1
            for file in self.files.values():
                os.close(file)

    def _ended(self, places: set[int]) -> str | None:
        if not self.is_open:  # by another thread, or by a signal's handler
            return "the process group was destroyed"
        poll = select.poll()  # select() refuses descriptors from 1,024
        for file in self.files.values():
            poll.register(file, select.POLLIN)
        ended = {file for file, _ in poll.poll(0)}
        lost = {place for place in places if self.files.get(place) in ended}
        lost |= {place for place in places if self.ranks[place].left}
        return f"rank {self.named(lost)} has ended or destroyed the group" if lost else None


def _file(store: Any, size: int, first: int, rank: int) -> int:
    """Return a descriptor of the memory that all ranks share."""
    if rank == first:
        file = os.memfd_create("allcores-group")
        os.ftruncate(file, size)
        store.set("memory", f"/proc/{os.getpid()}/fd/{file} {os.fstat(file).st_ino}")
        return file
    name, number = store.get("memory").decode().split()
    try:
        file = os.open(name, os.O_RDWR)
    except OSError as error:
        raise LostRankError(f"the memory of rank {first} cannot be opened: {error}") from None
    if os.fstat(file).st_ino != int(number):  # it has ended or given up, and opened another file
        os.close(file)
        raise LostRankError(f"rank {first} has not waited for this one")
    return file
