"""How processes end: with the one that called them, and when one of a run fails."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class RankFailedError(Exception):
    """A process of a run raised or was killed; the message names its rank and says how."""


def die_with_parent():
    """Have the kernel kill this process when its parent dies, even of SIGKILL (Linux prctl(2))."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os.kill(os.getpid(), signal.SIGKILL)
