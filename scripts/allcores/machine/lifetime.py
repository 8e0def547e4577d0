"""Processes that end with the one that started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
# The environment variable with the id of the client process, on whose behalf this one was forked.
CLIENT = "ALLCORES_CLIENT"


def die_with_parent(parent: int | None = None, number: int = signal.SIGKILL) -> None:
    """Have the kernel end this process when its parent dies, even by SIGKILL (Linux prctl(2)).

    Args:
        number: the signal that ends it.
        parent: process id of the expected parent, which may have died before this call; None: the
            current parent.
    """
    parent = os.getppid() if parent is None else parent
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it died before the call
        os.kill(os.getpid(), signal.SIGKILL)


def die_with_caller(arguments: list[str], number: int = signal.SIGKILL) -> None:
    """Call die_with_parent() if a program's arguments contain --die-with-parent and a process id.

    Both are removed from the arguments. A program does this before its slow imports.
    """
    if "--die-with-parent" in arguments:
        flag = arguments.index("--die-with-parent")
        die_with_parent(int(arguments[flag + 1]), number)
        del arguments[flag : flag + 2]


def signals_to_stop() -> list[signal.Signals]:
    """Return the signals that ask a program to save and end.

    SIGHUP, sent when a terminal is closed, is one of them unless it is ignored, as under nohup.
    """
    hang_up = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, *hang_up]


def how_it_ended(status: int) -> str:
    """Describe how a process ended, from its exit status in multiprocessing or subprocess."""
    if status >= 0:
        return f"ended with status {status}"
    known = {number.value: number.name for number in signal.Signals}
    name = known.get(-status, f"signal {-status}")  # real-time signals have no name
    memory = "; the system does this when memory runs out" if name == "SIGKILL" else ""
    return f"was killed by {name}{memory}"


def ignore_requests_to_stop() -> None:
    """Ignore the signals that ask a program to end from now on."""
    for number in (*signals_to_stop(), signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (prctl(2)).

    A model may start processes that outlive their rank.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_descendants() -> None:
    """Kill all descendants of this process and wait for them; adopt_orphans() was called before."""
    while children := _children():
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _children() -> list[int]:
    """Return the ids of this process's children, whichever of its threads forked them (proc(5))."""
    children: list[int] = []
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            children += map(int, file.read_text().split())
    return children
