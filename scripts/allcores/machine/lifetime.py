"""Processes that end with the one that called them."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
# The environment variable with the id of the process that stands for this one where it was called.
CLIENT = "ALLCORES_CLIENT"


def die_with_parent(parent=None, number=signal.SIGKILL):
    """Have the kernel end this process when its parent dies, even of SIGKILL (Linux prctl(2)).

    Args:
        number: the signal that ends it.
        parent: the expected parent's process id, where it may have died before this call; default:
            the present one.
    """
    parent = os.getppid() if parent is None else parent
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it died before the call
        os.kill(os.getpid(), signal.SIGKILL)


def die_with_caller(arguments):
    """die_with_parent(), if the arguments of a program hold --die-with-parent and a process id.

    A program asks for that before it imports anything that takes long.
    """
    if "--die-with-parent" in arguments:
        die_with_parent(int(arguments[arguments.index("--die-with-parent") + 1]))
