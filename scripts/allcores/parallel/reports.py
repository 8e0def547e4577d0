"""What is told of a rank: how it is, how it ended, and what its launcher raises then."""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import dataclass

# Characters of the text in which a rank reports its failure; a longer one loses its middle. An
# exception with more bytes is not sent.
LONGEST = 20_000
# What makes a rank fail: a signal killed it, its node is gone, it raised an exception, or one as of
# a lost connection, which is probably a complaint about another rank.
KILLED, GONE, RAISED, A_COMPLAINT = range(4)


class RankFailedError(Exception):
    """A process of a run raised, was killed or hangs; the message gives its rank and the cause.

    Attributes:
        cause: the exception that it raised, if it is small and can be pickled; else None.
    """

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class Report:
    """What a rank reports to its launcher when it ends.

    Attributes:
        when: seconds since 1970.
        problem: why it failed, in words; None: it did not.
        kind: RAISED or A_COMPLAINT.
        cause: the exception, pickled; b"": it is too large or cannot be pickled.
        value: what its function returned, if anything.
    """

    when: float
    problem: str | None = None
    kind: int = RAISED
    cause: bytes = b""
    value: object = None


@dataclass(frozen=True)
class Failure:
    """How a rank failed. The lowest kind is the cause of the others, and of one kind the earliest.

    Attributes:
        kind: KILLED, GONE, RAISED or A_COMPLAINT.
        when: seconds since 1970, by the clock of its node.
        text: the message.
        cause: see Report.
    """

    kind: int
    when: float
    text: str
    cause: bytes = b""

    def error(self) -> RankFailedError:
        cause = None
        if self.cause:
            # What only the rank could import is lost here; the text has its traceback.
            with contextlib.suppress(Exception):
                cause = pickle.loads(self.cause)
        return RankFailedError(self.text, cause)


@dataclass(frozen=True)
class Sign:
    """What a launcher sees of a running rank.

    Attributes:
        title: its rank and what it does.
        pid: the number of its process.
        beat: when it entered the phase, by its node's clock; changes while there is progress.
        silent: seconds since then.
        is_stopped: whether it has been stopped, for example by SIGSTOP.
    """

    title: str
    pid: int
    phase: str
    beat: float
    silent: float
    is_stopped: bool


def pickled(error: BaseException | None) -> bytes:
    """Pickle an exception; b"" if it is large, or not restored from that, as those of libraries."""
    if error is None:
        return b""
    try:
        pickled = pickle.dumps(error)
        is_sound = len(pickled) <= LONGEST and isinstance(pickle.loads(pickled), type(error))
        return pickled if is_sound else b""
    except Exception:
        return b""
