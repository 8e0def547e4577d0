"""Limits of time that hold beside other work on the machine.

A limit is given for a machine that does nothing else. It is stretched by how many processes share a
core just now, so that a test fails for what it tests and not for the hour.
"""

import os
import subprocess
import time
from pathlib import Path

# A hang is told from slowness by a limit that is that much longer than what is usual.
AMPLE = 3


def crowding():
    """How many processes that want a core there are for each, now or in the last minute; from 1."""
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    return max(1.0, max(running, os.getloadavg()[0]) / len(os.sched_getaffinity(0)))


def seconds(limit):
    """How long to wait, at the most, for what usually takes less than so many seconds."""
    return AMPLE * limit * crowding()


def is_within(limit, began):
    """Whether less than so many seconds of a quiet machine have passed since time.monotonic() was
    `began`."""
    return time.monotonic() - began < limit * crowding()


def wait_for(condition, limit=120):
    """Wait until a condition holds; fails after so many seconds of a quiet machine."""
    spent, before = 0.0, time.monotonic()
    while not condition():
        time.sleep(0.05)
        now = time.monotonic()
        spent, before = spent + (now - before) / crowding(), now
        assert spent < limit, "it did not happen in time"


def ended(process, limit):
    """The output of a process, once it has ended; it is killed if it does not."""
    try:
        return process.communicate(timeout=seconds(limit))[0]
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"no end after {limit} s of a quiet machine: {output}") from None
