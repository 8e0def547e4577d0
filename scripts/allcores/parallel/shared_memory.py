"""Memory and a lock that the processes of one run share."""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor


# Bytes that can be handed out. A file takes memory only where something has been written, on the
# NUMA node of the process that wrote there first.
RESERVED = 1 << 40


class SharedMemory:
    """Memory for tensors that all processes of a run see.

    Create it before forking the processes. The memory is an anonymous file (memfd_create(2)). It
    has no name in /dev/shm that could be left behind or collide, is not subject to the limit that
    containers set on that folder, and is gone with the last process.
    """

    def __init__(self) -> None:
        self.file = os.memfd_create("allcores")
        os.ftruncate(self.file, RESERVED)
        # A separate file, since closing any descriptor of a locked file would release the lock.
        self.lock_file = os.memfd_create("allcores-lock")
        self.size = 0

    def zeros(self, shape: Any, dtype: torch.dtype) -> Tensor:
        """Return a tensor of zeros. All processes must request the same ones in the same order."""
        length = math.prod(shape) * dtype.itemsize
        length += -length % mmap.PAGESIZE
        memory = mmap.mmap(self.file, length, offset=self.size)
        self.size += length
        return torch.frombuffer(memory, dtype=dtype, count=math.prod(shape)).view(shape)

    def close(self) -> None:
        """Close the files; tensors that have been handed out stay valid until they are freed."""
        os.close(self.file)
        os.close(self.lock_file)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the one lock of the run; the kernel releases it when its holder dies."""
        fcntl.lockf(self.lock_file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.lock_file, fcntl.LOCK_UN)
