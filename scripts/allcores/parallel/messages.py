"""What ranks and launchers tell each other while a run lasts, a dataclass for each message.

A rank reports to its launcher how it ended. On several nodes each launcher watches over its own
ranks and tells node 0 every second how they are; node 0 judges, and tells all how the run ends.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """What a rank says at its end, to its launcher.

    Attributes:
        when: seconds since 1970.
        cause: why it failed, a text or a DivergedError; None: it did not.
    """

    when: float
    cause: object


@dataclass(frozen=True)
class Sign:
    """What a launcher sees of a rank that is running.

    Attributes:
        title: its rank and what it does.
        pid: of its process.
        beat: when it entered the phase, as its node counts time; changes while there is progress.
        silent: seconds since then.
        is_stopped: whether it has been stopped, by SIGSTOP, say.
    """

    title: str
    pid: int
    phase: str
    beat: float
    silent: float
    is_stopped: bool


@dataclass(frozen=True)
class Failure:
    """How a rank failed: a signal outweighs an error, of two errors the earlier one is the cause.

    Attributes:
        error: the RankFailedError or DivergedError.
        weight: 0: a signal killed it; 1: its node is gone, or the training diverged; 2: an error.
        when: seconds since 1970.
    """

    error: Exception
    weight: int
    when: float


# To node 0.


@dataclass(frozen=True)
class Signs:
    """How the ranks of a node are, a Sign of each that is running."""

    signs: list


@dataclass(frozen=True)
class Done:
    """All ranks of a node have ended well."""


@dataclass(frozen=True)
class Failed:
    """A rank of a node has failed: the Failure."""

    failure: Failure


@dataclass(frozen=True)
class Interrupted:
    """A node was told to stop, by the signal of that name."""

    signal: str


@dataclass(frozen=True)
class Reached:
    """The answer to Pause: the first step after which the workers of a node can pause."""

    step: int


@dataclass(frozen=True)
class PauseOver:
    """The workers of a node have saved, and train again."""


@dataclass(frozen=True)
class Collected:
    """What node 0 waits for in Nodes.collect()."""

    value: object


# From node 0.


@dataclass(frozen=True)
class Alive:
    """Node 0 is there."""


@dataclass(frozen=True)
class Ended:
    """The run has failed: why."""

    error: Exception


@dataclass(frozen=True)
class PauseRequest:
    """All workers are to save; then they stop, if a signal of that name has asked for it."""

    signal: str | None


@dataclass(frozen=True)
class PauseAfter:
    """The step after which all workers pause."""

    step: int
