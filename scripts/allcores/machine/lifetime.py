"""How processes end: with the one that called them, and when one of a run fails."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


class RankFailedError(Exception):
    """A process of a run raised, was killed or hangs; the message names its rank and says how."""


class DivergedError(Exception):
    """The loss of a training is no longer a finite number.

    Attributes:
        epoch, step: counted from 1; step is None where only the finished epoch shows it.
        lr: learning rate of that step; without one, at the beginning of the epoch.
    """

    def __init__(self, epoch, step, lr):
        super().__init__(epoch, step, lr)
        self.epoch, self.step, self.lr = epoch, step, lr

    def __str__(self):
        step = "" if self.step is None else f", step {self.step}"
        return f"the loss is not finite in epoch {self.epoch}{step}, learning rate {self.lr:.3g}"


def die_with_parent(parent=None):
    """Have the kernel kill this process when its parent dies, even of SIGKILL (Linux prctl(2)).

    Args:
        parent: the expected parent's process id, where it may have died before this call; default:
            the present one.
    """
    parent = os.getppid() if parent is None else parent
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os.kill(os.getpid(), signal.SIGKILL)


def die_with_caller(arguments):
    """die_with_parent(), if the arguments of a program hold --die-with-parent and a process id.

    A program asks for that before it imports anything that takes long.
    """
    if "--die-with-parent" in arguments:
        die_with_parent(int(arguments[arguments.index("--die-with-parent") + 1]))
