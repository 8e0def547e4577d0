"""Memory in which the ranks of one machine meet and write for each other, by exchange.c."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import os
import platform
import shlex
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("exchange.c")
# No instructions that only some processors have: a wheel is for all, and bits are always the same.
OPTIONS = ["-std=gnu11", "-O3", "-fPIC", "-shared", "-fwrapv", "-fno-strict-aliasing"]
OPTIONS += ["-ffp-contract=off", "-Wall"]
# The compiler of the package ziglang, for every Linux with glibc since 2014.
ZIG = [sys.executable, "-m", "ziglang", "cc", "-target", f"{platform.machine()}-linux-gnu.2.17"]

DONE, WAITING = -1, -2  # what begin() and proceed() return, else a rank's place
LOOK = 0.1  # seconds after which they return
SPIN = 1e-3  # seconds to poll before sleeping, where each rank has a core: waking up takes longer


class Head(ctypes.Structure):
    """As in exchange.c. `failed`: a collective has failed, so no other can run."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("arrived", "round", "sleepers", "failed")),
        ("rest", ctypes.c_char * 48),
    )


class Rank(ctypes.Structure):
    """As in exchange.c. `left`: whether the rank has left the group."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("left", "arrivals")),
        ("calls", ctypes.c_int64 * 6 * 2),
        ("rest", ctypes.c_int64 * 2),
    )


class Member(ctypes.Structure):
    """A rank's side of a group, as in exchange.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("head", "ranks", "blocks", "inputs", "outputs")),
        *((name, ctypes.c_int64) for name in ("row", "spin")),
        *((name, ctypes.c_int32) for name in ("place", "count")),
        ("call", ctypes.c_int64 * 6),
        *((name, ctypes.c_int64) for name in ("start", "part", "step")),
        *((name, ctypes.c_uint32) for name in ("phase", "round")),
    )


CALL = struct.Struct("6q")  # kind, type, operation, root, length, size


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

    Attributes:
        head, ranks: what all see, as in exchange.c.
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
    ) -> None:
        count = len(ranks)
        self.names, self.place, self.spin, self.timeout = ranks, place, spin, timeout
        self.head = Head.from_buffer(memory)
        self.ranks = (Rank * count).from_buffer(memory, ctypes.sizeof(Head))
        self._addresses = [(ctypes.c_void_p * count)() for _ in range(2)]
        self._member = Member(
            head=ctypes.addressof(self.head),
            ranks=ctypes.addressof(self.ranks),
            blocks=ctypes.addressof(self.head) + _head_of(count),
            inputs=ctypes.addressof(self._addresses[0]),
            outputs=ctypes.addressof(self._addresses[1]),
            row=row,
            spin=round(1e9 * spin),
            place=place,
            count=count,
        )
        self._call = memoryview(self._member).cast("B")[Member.call.offset :]
        self._functions = library()

    def meet(self) -> None:
        """Arrive and wait for the others. Each then sees what all wrote to shared memory.

        Raises:
            LostRankError: see run().
        """
        self.run(0, 0, 0, 0, 0, 0)

    def run(
        self,
        kind: int,
        type: int,
        operation: int,
        root: int,
        length: int,
        size: int,
        inputs: Sequence[int] = (),
        outputs: Sequence[int] = (),
    ) -> None:
        """Run a collective of exchange.c.

        Args:
            length: how many numbers each has.
            size: bytes of a number; 0: the ranks only meet, and compare what they call.
            inputs, outputs: addresses of memory; one, or one for each rank.

        Raises:
            DifferentCallError: another rank calls it with other arguments.
            LostRankError: some ranks did not arrive in time, or never will; the message names
                them. No rank can use the memory from then on.
        """
        functions, member = self._functions, self._member
        if member.phase:  # an exception has interrupted a collective
            self.give_up()
        self.check()
        for addresses, given in zip(self._addresses, (inputs, outputs), strict=True):
            for place, address in enumerate(given):
                addresses[place] = address
        CALL.pack_into(self._call, 0, kind, type, operation, root, length, size)
        pointer = ctypes.byref(member)
        status, looks = functions.begin(pointer), 0
        while status == WAITING:
            looks += 1
            is_vain = self._problem(looks)
            status = functions.proceed(pointer)
            if is_vain and status == WAITING and (problem := self._problem(looks)):
                self.give_up()
                raise LostRankError(problem)
        if status != DONE:
            theirs = self.ranks[status].calls[(member.step - 1) % 2]
            raise DifferentCallError(status, tuple(theirs)[:5])

    def check(self) -> None:
        """Raise an error if no collective can run."""
        if self.head.failed:
            raise LostRankError(
                "the group is unusable: a collective of this or another rank has failed"
            )

    def give_up(self) -> None:
        """Mark the memory as unusable: no rank runs another collective."""
        self.head.failed = 1

    def named(self, places: set[int]) -> str:
        """Return the names of the ranks at these places."""
        return ", ".join(str(self.names[place]) for place in sorted(places))

    def _problem(self, looks: int) -> str | None:
        """Return why a wait is in vain after so many looks, or None.

        Looks are counted, not seconds, in which this process may have been stopped.
        """
        own = self.ranks[self.place].arrivals
        missing = {place for place, rank in enumerate(self.ranks) if rank.arrivals < own}
        if problem := self._ended(missing):
            return problem
        late = self.named(missing) or "another"
        if looks * LOOK >= self.timeout:
            return f"rank {late} did not arrive within the timeout of {self.timeout:g} s"
        if self.head.failed:
            return f"rank {late} did not arrive, and another rank of the group has given up"
        return None

    def _ended(self, places: set[int]) -> str | None:
        """Return why the ranks at these places will never arrive, or None."""
        return None


def size_of(count: int, row: int = 0) -> int:
    """Return the bytes of memory for so many ranks.

    Args:
        row: bytes that each can write at a time; 0: they only meet.
    """
    return _head_of(count) + 2 * row * count


def _head_of(count: int) -> int:
    whole = ctypes.sizeof(Head) + ctypes.sizeof(Rank) * count
    return -(-whole // mmap.PAGESIZE) * mmap.PAGESIZE


@functools.cache
def library() -> Any:
    """Return the functions of exchange.c, which is compiled if that has not been done.

    Raises:
        OSError: it cannot be compiled.
    """
    file = built()
    if file.exists():
        return ctypes.CDLL(str(file))
    if os.access(file.parent, os.W_OK):
        return ctypes.CDLL(str(build()))
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(str(_compiled(Path(folder))))


def built() -> Path:
    """Return where the compiled file of this source belongs.

    Its name has the kind of processor, since computers may share a folder.
    """
    text = SOURCE.read_bytes() + " ".join(OPTIONS).encode()
    digest = hashlib.sha256(text).hexdigest()[:8]
    return SOURCE.with_name(f"exchange_{platform.machine()}_{digest}.so")


def build(*commands: list[str]) -> Path:
    """Compile exchange.c, and return the file.

    Args:
        commands: as for _compiled().
    """
    file = built()
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        return _compiled(Path(folder), *commands).replace(file)


def _compiled(folder: Path, *commands: list[str]) -> Path:
    """Compile exchange.c into a folder by the first C compiler that can.

    Args:
        commands: of compilers; the default is that of CC or cc, then ZIG.

    Raises:
        OSError: none could.
    """
    file, said = folder / "exchange.so", []
    try:
        own = shlex.split(os.environ.get("CC") or "cc")
    except ValueError as error:
        raise OSError(f"exchange.c was not compiled: CC: {error}") from None
    for command in commands or (own, ZIG):
        whole = [*command, *OPTIONS, "-o", str(file), str(SOURCE)]
        try:
            run = subprocess.run(whole, capture_output=True, text=True)
        except OSError as error:
            said.append(str(error))
            continue
        if run.returncode == 0 and file.exists():
            return file
        said.append(f"{shlex.join(whole)} has failed:\n{run.stderr}")
    raise OSError("exchange.c was not compiled:\n" + "\n".join(said))
