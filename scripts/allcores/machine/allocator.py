"""What malloc does with memory that has been freed."""

from __future__ import annotations

import ctypes

# Parameters of mallopt(3).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
STEP = 64 * 2**20  # by how many bytes the heap grows at least


def keep_freed_memory() -> None:
    """Let this process use freed memory again instead of giving it back to the system.

    By default glibc gives each large tensor back when it is freed, and the next one begins with a
    page fault for every 4 KiB: 5 to 25 % of the time of a training step, whose tensors are as large
    as those of the step before. To be called when all is set up: what was freed until then has
    gone back.
    """
    libc = ctypes.CDLL(None)
    for parameter, value in (
        (M_MMAP_MAX, 0),
        (M_TRIM_THRESHOLD, 2**31 - 1),
        (M_TOP_PAD, STEP),
    ):
        done = libc.mallopt(parameter, value)
        assert done == 1
