"""Memory in which the ranks of one machine meet and write for each other, by exchange.c."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import os
import platform
import shlex
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("exchange.c")
# No instructions that only some processors have: a wheel is for all, and bits are always the same.
OPTIONS = ["-std=gnu11", "-O3", "-fPIC", "-shared", "-fwrapv", "-fno-strict-aliasing"]
OPTIONS += ["-ffp-contract=off", "-Wall"]

ZIG = [sys.executable, "-m", "ziglang", "cc"]

LINE = 64  # bytes of a cache line
HEAD, RANK = LINE, 3 * LINE  # bytes of C's types of these names
CALL = struct.Struct("6q")  # kind, type, operation, root, length, size
DONE, WAITING, UNUSABLE = -1, -2, -3  # what begin() and proceed() return, else a rank's place

SPIN = 1e-3  # seconds to poll before sleeping, where each rank has a core: waking up takes longer


class LostRankError(RuntimeError):
    """Another rank of a group has ended or did not arrive in time."""


class DifferentCallError(ValueError):
    """Another rank calls another collective.

    Attributes:
        place: of that rank.
        call: (kind, type, operation, root, length) of its collective.
    """

    def __init__(self, place: int, call: tuple[int, ...]) -> None:
        self.place, self.call = place, call


class Exchange:
    """A rank's side of memory that the ranks of one machine share; exchange.c explains it.

    Args:
        memory: of size_of() bytes, zeros before the first rank has it.
        ranks: the names of all ranks, in messages.
        place: position of this one among them.
        spin: seconds to poll for the others, before sleeping. 0 where ranks share cores.
        timeout: seconds to wait for the others.
        row: as for size_of().
        watch: function of the places that are waited for, called every tenth of a second. It
            returns why they will never arrive, or None.

    Attributes:
        inputs, outputs: where run() reads and writes, one address or one per rank.
        left: a number of each rank that all see: whether it has left.
    """

    def __init__(
        self,
        memory: mmap.mmap,
        ranks: Sequence[int],
        place: int,
        *,
        spin: float,
        timeout: float,
        row: int = 0,
        watch: Callable[[set[int]], str | None] = lambda places: None,
    ) -> None:
        self.ranks, self.place, self.watch = ranks, place, watch
        self.spin, self.timeout = spin, timeout
        self.inputs, self.outputs = ((ctypes.c_void_p * len(ranks))() for _ in range(2))
        start, head = ctypes.addressof(ctypes.c_char.from_buffer(memory)), HEAD
        self._member = Member(
            head=start,
            ranks=start + head,
            blocks=start + _head_of(len(ranks)),
            inputs=ctypes.addressof(self.inputs),
            outputs=ctypes.addressof(self.outputs),
            row=row,
            spin=round(1e9 * spin),
            place=place,
            count=len(ranks),
        )
        self._address = ctypes.c_void_p(ctypes.addressof(self._member))
        self._call = memoryview(self._member).cast("B")[Member.call.offset :]
        words = memoryview(memory)[: head + RANK * len(ranks)]
        self._failed = words[:head].cast("I")[3:4]
        self._ranks = words[head:].cast("q")
        self.left = self._ranks[:: RANK // 8]
        self._arrivals = self._ranks[1 :: RANK // 8]
        self._functions = library()

    def meet(self) -> None:
        """Arrive and wait for the others. Each then sees what all wrote to shared memory.

        Raises:
            LostRankError: see run().
        """
        self.run(0, 0, 0, 0, 0, 0)

    def run(self, kind: int, type: int, operation: int, root: int, length: int, size: int) -> None:
        """Run a collective of exchange.c on `inputs` and `outputs`.

        Args:
            length: how many numbers each has.
            size: bytes of a number; 0: the ranks only meet, and compare what they call.

        Raises:
            DifferentCallError: another rank calls it with other arguments.
            LostRankError: some ranks did not arrive in time, or never will; the message names
                them. No rank can use the memory from then on.
        """
        functions, member = self._functions, self._address
        CALL.pack_into(self._call, 0, kind, type, operation, root, length, size)
        status = functions.begin(member)
        if status == DONE:
            return
        end = time.monotonic() + self.timeout
        while status == WAITING:
            problem = self._problem(end)
            status = functions.proceed(member)
            if problem and status == WAITING:
                self.give_up()
                raise LostRankError(problem)
        self.check()
        if status != DONE:
            odd = (self._member.step - 1) % 2
            first = status * RANK // 8 + LINE // 8 * (1 + odd)
            raise DifferentCallError(status, tuple(self._ranks[first : first + 5]))

    def close(self) -> None:
        """Let go of the memory; run() must not be called any more."""
        del self.left, self._ranks, self._arrivals, self._failed

    def give_up(self) -> None:
        """Mark the memory as unusable: no rank runs another collective."""
        self._failed[0] = 1

    def check(self) -> None:
        """Raise an error if no collective can run."""
        if self._failed[0]:
            raise LostRankError(
                "the group is unusable: a collective of this or another rank has failed"
            )

    def names(self, places: set[int]) -> str:
        """Return the names of the ranks at these places."""
        return ", ".join(str(self.ranks[place]) for place in sorted(places))

    def _problem(self, end: float) -> str | None:
        """Return why a wait is in vain, or None."""
        own = self._arrivals[self.place]
        missing = {place for place, times in enumerate(self._arrivals) if times < own}
        if problem := self.watch(missing):
            return problem
        if self._failed[0]:
            return "another rank of the group has ended or did not arrive in time"
        if time.monotonic() > end:
            late = self.names(missing)
            return f"rank {late} did not arrive within {self.timeout:g} s (timeout)"
        return None


def size_of(count: int, row: int = 0) -> int:
    """Return the bytes of memory for so many ranks.

    Args:
        row: bytes that each can write at a time; 0: they only meet.
    """
    return _head_of(count) + 2 * row * count


def _head_of(count: int) -> int:
    return -(-(HEAD + RANK * count) // mmap.PAGESIZE) * mmap.PAGESIZE


class Member(ctypes.Structure):
    """A rank's side of a group, as in exchange.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("head", "ranks", "blocks", "inputs", "outputs")),
        *((name, ctypes.c_int64) for name in ("row", "spin")),
        *((name, ctypes.c_int32) for name in ("place", "count")),
        ("call", ctypes.c_int64 * 8),
        *((name, ctypes.c_int64) for name in ("start", "part", "step")),
        *((name, ctypes.c_uint32) for name in ("phase", "round")),
    )


@functools.cache
def library() -> Any:
    """Return the functions of exchange.c, which is compiled if that has not been done.

    Raises:
        OSError: it cannot be compiled.
    """
    file = built()
    return ctypes.CDLL(str(file if file.exists() else build()))


def built() -> Path:
    """Return where the compiled file of this source belongs.

    Its name has the kind of processor, since computers may share a folder.
    """
    text = SOURCE.read_bytes() + " ".join(OPTIONS).encode()
    digest = hashlib.sha256(text).hexdigest()[:8]
    return SOURCE.with_name(f"exchange_{platform.machine()}_{digest}.so")


def build(command: list[str] | None = None) -> Path:
    """Compile exchange.c, and return the file.

    Args:
        command: of a C compiler; None: that of compiler().

    Raises:
        OSError: there is no compiler, or it has failed.
    """
    file = built()
    temporary = file.with_suffix(f".{os.getpid()}")
    whole = [*(command or compiler()), *OPTIONS, "-o", str(temporary), str(SOURCE)]
    try:
        run = subprocess.run(whole, capture_output=True, text=True)
        if run.returncode:
            raise OSError(f"{shlex.join(whole)} has failed:\n{run.stderr}")
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    for other in file.parent.glob(f"exchange_{platform.machine()}_*.so"):
        if other != file:
            other.unlink(missing_ok=True)
    return file


def compiler() -> list[str]:
    """Return the command of the C compiler of this machine, else ZIG."""
    named = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(named[0]):
        return named
    return ZIG
