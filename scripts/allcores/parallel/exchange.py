"""Shared memory and a barrier for processes of one machine, which notice when another ends."""

from __future__ import annotations

import contextlib
import functools
import itertools
import mmap
import os
import secrets
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.futures import Future

from allcores.parallel import barrier
from allcores.parallel.barrier import Barrier, LostRankError

if TYPE_CHECKING:
    from torch import Tensor


# Bytes of a block per rank: two of every rank stay in a processor's cache.
BLOCK = 1 << 20
SPIN = 1e-3  # seconds to poll at a barrier before sleeping, where each rank has a core
LINE = 64  # bytes of a cache line
LEFT = -1  # instead of the id of a process that has destroyed its group
CREDENTIALS = struct.Struct("3i")  # of SO_PEERCRED: process, user, group


def machine() -> str:
    """Return a text that is equal in processes that can share memory by an Exchange.

    They have one kernel, one namespace of sockets, and one of process ids, which show who has
    ended.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    spaces = [Path(f"/proc/self/ns/{kind}").readlink() for kind in ("net", "pid")]
    return f"{socket.gethostname()} {boot} {spaces} {os.getuid()}"


def machines(store: Any, rank: int, size: int) -> list[list[int]]:
    """Return the ranks on each machine, [[rank, ...], ...], ordered by their first ones."""
    store.set(f"machine of rank {rank}", machine())
    ranks: dict[Any, list[int]] = {}
    for other in range(size):
        ranks.setdefault(store.get(f"machine of rank {other}"), []).append(other)
    return list(ranks.values())


class Exchange:
    """Memory in which the ranks of one machine write for each other.

    The first rank creates an anonymous file and the signals of a barrier. It hands their
    descriptors to the others over a Unix socket without a name in the file system. So nothing can
    be left in /dev/shm, and its size does not matter.

    The steps of a collective use two blocks in turn. A rank arrives at the barrier of step k + 1
    after it has read the block of step k. Once all have passed that barrier, the block may be
    written again for step k + 2. So a step needs only one barrier.

    Args:
        store: torch's store, only for this group and machine.
        ranks: the ranks of the group on this machine, in order.
        rank: that of this process.
        timeout: seconds to wait for the others.

    Attributes:
        place: position of this rank among the ranks.

    Raises:
        LostRankError: the other ranks did not join in time.
    """

    def __init__(self, store: Any, ranks: Any, rank: int, timeout: float) -> None:
        self.ranks, self.place, self.timeout = ranks, ranks.index(rank), timeout
        self.process, self.step, self.is_within = os.getpid(), 0, False
        self.lock = threading.RLock()  # one thread at a time runs a collective
        count = len(ranks)
        header = -(-LINE * (3 + 3 * count) // mmap.PAGESIZE) * mmap.PAGESIZE
        with contextlib.ExitStack() as open_files:
            memory, *signals = self._descriptors(store, header + 2 * BLOCK * count)
            open_files.callback(os.close, memory)
            self.memory: Any = mmap.mmap(memory, 0)
        words = memoryview(self.memory)[:header].cast("q")
        self.processes: Any = words[:count]
        self.processes[self.place] = self.process
        arrivals = words[count : 2 * count]
        self.failed: Any = words[2 * count : 2 * count + 1]
        described = LINE * (2 * count // 8 + 2)
        self.described: Any = [
            [memoryview(self.memory)[start : start + LINE].cast("q") for start in of_step]
            for of_step in (
                range(described + LINE * count * k, described + LINE * count * (k + 1), LINE)
                for k in (0, 1)
            )
        ]
        with torch.inference_mode(mode=False):  # so that they can also be used outside of it
            self.blocks: Any = torch.frombuffer(self.memory, dtype=torch.uint8, offset=header)
            self.blocks = self.blocks.view(2, count, BLOCK)
        self.views: dict[torch.dtype, Tensor] = {}  # dtype -> its view of blocks
        self.signals = signals
        self.files: dict[int, int] = {}  # place -> descriptor of its process
        self.barrier: Any = Barrier(
            ranks, self.place, signals, arrivals, 0, timeout, watch=self._lost
        )
        try:
            self.meet()  # every rank has written its process id
        except BaseException:
            self.close()
            raise
        self.barrier.spin = SPIN if count <= len(_cores_of(self.processes)) else 0
        for place, process in enumerate(self.processes):
            if place != self.place:
                # An id of another namespace means nothing here; then only the timeout remains.
                with contextlib.suppress(OSError):
                    self.files[place] = os.pidfd_open(process)

    def _descriptors(self, store: Any, size: int) -> list[int]:
        """Return the shared file, then the signals that this rank raises and awaits per round."""
        if self.place > 0:
            return self._received(store.get("socket").decode())
        memory = os.memfd_create("allcores-group")
        os.ftruncate(memory, size)
        signals = barrier.signals(len(self.ranks))
        try:
            if len(self.ranks) > 1:
                self._hand_out(store, memory, signals)
            return [memory, *(os.dup(signal) for signal in barrier.of_rank(signals, 0))]
        except BaseException:
            os.close(memory)
            raise
        finally:
            for signal in itertools.chain(*signals):
                os.close(signal)

    def _hand_out(self, store: Any, memory: Any, signals: Any) -> None:
        name = f"allcores-{secrets.token_hex(16)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.settimeout(self.timeout)
            listener.bind(f"\0{name}")
            listener.listen(len(self.ranks))
            store.set("socket", name)
            waiting = set(range(1, len(self.ranks)))
            while waiting:
                try:
                    other, _ = listener.accept()
                except TimeoutError:
                    raise LostRankError(self._missing(waiting)) from None
                with other:
                    other.settimeout(self.timeout)
                    credentials = other.getsockopt(
                        socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size
                    )
                    if CREDENTIALS.unpack(credentials)[1] != os.getuid():
                        continue
                    place = int(other.recv(16))
                    socket.send_fds(other, [b"."], [memory, *barrier.of_rank(signals, place)])
                    waiting.discard(place)

    def _received(self, name: str) -> list[int]:
        count = 1 + 2 * len(barrier.distances(len(self.ranks)))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
            first.settimeout(self.timeout)
            try:
                first.connect(f"\0{name}")
                first.send(str(self.place).encode())
                _, descriptors, _, _ = socket.recv_fds(first, 1, count, socket.MSG_CMSG_CLOEXEC)
            except OSError:
                raise LostRankError(self._missing([0])) from None
        if len(descriptors) != count:
            raise LostRankError(self._missing([0]))
        return descriptors

    def _missing(self, places: Any) -> Any:
        names = ", ".join(str(self.ranks[place]) for place in sorted(places))
        return f"rank {names} has not joined the group within {self.timeout:g} s"

    def begin(self, *description: Any) -> None:
        """Begin a collective. At its first meet(), all ranks must have described the same one.

        Args:
            description: eight whole numbers at most.
        """
        if self.is_within:  # an exception has interrupted a collective before end()
            self.give_up()
        self.check()
        self.is_within = True
        words = self.described[self.step % 2][self.place]
        for position, number in enumerate(description):
            words[position] = number

    def end(self) -> None:
        """End the collective: this rank has read what the others have written."""
        self.step += 1
        self.is_within = False

    def check(self) -> None:
        """Raise an error if this process or the group cannot run a collective."""
        self._check_member()
        if self.failed[0]:
            raise LostRankError(
                "the group is unusable: a collective of this or another rank has failed"
            )

    def give_up(self) -> None:
        """Mark the group as failed: no rank runs another collective."""
        self.failed[0] = 1

    def _check_member(self) -> None:
        if os.getpid() != self.process:
            raise RuntimeError(
                "this process was forked from one that has joined a group of the backend shm; "
                "each process has to call init_process_group() itself"
            )
        if self.barrier is None:
            raise RuntimeError("the process group was destroyed")

    def rows(self, dtype: torch.dtype) -> Any:
        """Return the block of this step, (ranks, elements) of a dtype, with one row per rank.

        Raises:
            RuntimeError: this process was forked and would write to the row of its parent, or the
                group was destroyed.
        """
        self._check_member()
        if dtype not in self.views:
            with torch.inference_mode(mode=False):
                self.views[dtype] = self.blocks.view(dtype)
        return self.views[dtype][self.step % 2]

    def meet(self) -> None:
        """Wait until every rank has written its part of this step.

        Raises:
            LostRankError: another one has ended, destroyed the group or does not arrive in time.
                No rank can use the group from then on.
        """
        try:
            self.barrier.wait()
        except LostRankError:
            self.give_up()
            raise

    def _lost(self, places: set[int]) -> str | None:
        """Return why the ranks at these places will never arrive, or None."""
        poll = select.poll()  # select() refuses descriptors from 1,024
        for file in self.files.values():
            poll.register(file, select.POLLIN)
        ended = {file for file, _ in poll.poll(0)}
        lost = {place for place, process in enumerate(self.processes) if process == LEFT}
        lost = places & (lost | {place for place, file in self.files.items() if file in ended})
        if lost:
            return f"rank {self.barrier.names(lost)} has ended or destroyed the group"
        if self.failed[0]:
            return "another rank of the group has ended or did not arrive in time"
        return None

    def differing(self) -> int | None:
        """Return the place of a rank that has described another collective; None: all agree."""
        described = self.described[self.step % 2]
        own = described[self.place]
        return next((place for place, other in enumerate(described) if other != own), None)

    def close(self) -> None:
        """Close what is open. The memory is freed with its last view."""
        if self.barrier:
            if os.getpid() == self.process:
                self.processes[self.place] = LEFT
            for file in (*self.signals, *self.files.values()):
                os.close(file)
        self.memory = self.blocks = self.processes = self.described = self.failed = self.barrier = (
            None
        )
        self.views = {}


def _cores_of(processes: Iterable[int]) -> set[int]:
    """Return the cores of all these processes, each of which may be pinned to its own."""
    cores: set[int] = set()
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended, which the first collective reports
            cores |= os.sched_getaffinity(process)
    return cores


@contextlib.contextmanager
def flattened(tensor: Tensor, writes: bool, dtype: torch.dtype | None = None) -> Iterator[Any]:
    """Yield a tensor as a vector, viewed as another dtype if one is given.

    Args:
        writes: whether what is written to the vector has to be in the tensor afterwards.
    """
    tensor = tensor.detach()
    whole = tensor.contiguous()
    # Not view(-1), which keeps the stride of a single element.
    vector = whole.as_strided((whole.numel(),), (1,))
    yield vector if dtype is None else vector.view(dtype)
    if writes and not tensor.is_contiguous():
        tensor.copy_(vector.view(tensor.shape))


def parts_of(vector: Tensor, length: int) -> Any:
    """Split a vector into parts of a length. An empty one is one part, since ranks still meet."""
    return vector.split(length) if len(vector) else [vector]


def one_thread(collective: Callable[..., Any]) -> Callable[..., Any]:
    """Let only one thread of a process at a time run a collective."""

    @functools.wraps(collective)
    def alone(self: Any, *arguments: Any, **named: Any) -> Any:
        with self.exchange.lock:
            return collective(self, *arguments, **named)

    return alone


class Done(dist.Work):
    """What a collective returns once it has ended."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.values = result
        self.future: Future[Any] = Future()
        self.future.set_result(result)

    def wait(self, timeout: Any = None) -> bool:
        return True

    is_completed = is_success = wait

    def result(self) -> Any:
        return self.values

    def get_future(self) -> Any:
        return self.future
