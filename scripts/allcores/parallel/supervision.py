"""Watch the ranks of a run, and find the one that failed first or keeps the others waiting.

On several nodes, each launcher watches its own ranks, and node 0 decides. They send each other:

    message          its meaning or value, from a launcher to node 0
    ----------------------------------------------------------------------------------------------
    signs            the state of its ranks, every second: a list of Sign
    done             all its ranks have ended well
    failed           a rank has failed: a Failure
    interrupted      the name of the signal that asked it to stop
    reached          the answer to `pause`: the first step after which its workers can pause
    pause over       its workers have saved, and train again

    message          its meaning or value, from node 0 to the others
    ----------------------------------------------------------------------------------------------
    alive            every second
    ended            the run has failed: a Failure
    pause            all workers have to save, and then to stop if the value is the name of a signal
    pause after      the step after which all workers pause
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import signal
import time
from collections.abc import Iterator
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.machine.lifetime import how_it_ended, signals_to_stop
from allcores.parallel.nodes import JOINING
from allcores.parallel.reports import GONE, KILLED, RAISED, Failure, RankFailedError, Sign, pickled

if TYPE_CHECKING:
    from allcores.parallel.clock import Clock
    from allcores.parallel.nodes import Nodes
    from allcores.parallel.pause import Pause


# How often a launcher checks for progress (seconds).
LOOK = 1.0
# Phases in which a rank waits for others, and those in which it works alone. In an exchange, whose
# phases each strategy names itself, it does both. A rank that hangs is probably working alone.
TOGETHER = ("sum", "broadcast", "barrier", "save", "end")  # of an allcores.run(), for all ranks
WAITING, ALONE = ("wait", "checkpoint", "share", *TOGETHER), ("data", "compute", "update")
# Seconds without progress after which ranks that are all in TOGETHER are taken to be deadlocked.
IN_VAIN = 30.0
# When one rank dies, the others' complaints about it arrive within this time (seconds).
GRACE = 0.5
# The complaints of other nodes arrive within this time after that (seconds).
FROM_NODES = 2.0
# A launcher that has been silent for so long has died, or its node has (seconds). It is counted in
# looks, since the other was not silent while this process itself was suspended.
SILENCE = 8.0
# How long workers may take to end their step and save when they have to stop (seconds).
STOPPING = 25.0


class Supervisor:
    """The watcher of a run, until every rank on all nodes has ended well.

    Args:
        ranks: rank -> (process, pipe on which it reports how it ended), of this node.
        title: function of a rank that returns its name in messages.
        clocks: the Clocks of these ranks, in their order.
        pause: the Pause of this node's workers.
        timeout: the run fails if no rank makes progress for so many seconds. A rank makes progress
            when it enters a phase of its clock, the same one or another.
        save_every: seconds after which a checkpoint is due; None: workers do not save on demand.
    """

    def __init__(
        self,
        ranks: Any,
        title: Any,
        clocks: list[Clock],
        pause: Pause,
        nodes: Nodes,
        timeout: float,
        save_every: float | None = None,
    ) -> None:
        self.ranks, self.title, self.clocks, self.pause = ranks, title, clocks, pause
        self.nodes, self.timeout, self.save_every = nodes, timeout, save_every
        self.running = {process.sentinel: rank for rank, (process, _) in ranks.items()}
        self.pipes = {pipe: rank for rank, (_, pipe) in ranks.items()}  # those that are open
        self.reports: dict[int, Any] = {}  # rank -> Report
        self.idle, self.looked = 0.0, -LOOK  # the first look is at once
        self.before: list[tuple[int, float]] | None = None
        self.have_ended = False
        self.woken = os.eventfd(0, os.EFD_CLOEXEC)  # by a signal
        self.furthest: dict[int, int] = {}  # node -> step, of those that have answered to a pause
        # Nodes with a pause; node 0 lists all, another node only itself.
        self.pausing: set[int] = set()
        self.signal: str | None = None  # name of the signal that stops the run
        self.stop_until = math.inf

    def watch(self) -> None:
        """Wait until the run has ended.

        Raises:
            RankFailedError: a rank raised, was killed or hangs, or a launcher or node is gone.
            KeyboardInterrupt: a signal asked to stop; the workers have saved, if they could.
        """
        for link in self.nodes.links:
            link.unheard = -JOINING  # it may start later
        handlers = {}
        if self.save_every is not None:
            handlers = {
                number: signal.signal(number, self._on_signal) for number in signals_to_stop()
            }
        try:
            while self.running or self._waits_for_nodes():
                self._look()
        except ConnectionError as error:
            self._tell("ended", Failure(GONE, time.time(), str(error)))
            raise RankFailedError(str(error)) from None
        except RankFailedError as error:
            self._tell("ended", Failure(RAISED, time.time(), str(error), pickled(error.cause)))
            raise
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(self.woken)
        if self.nodes.node:
            self._tell("done")
        if self.signal:
            raise KeyboardInterrupt(self.signal)

    def _on_signal(self, number: int, frame: Any) -> None:
        self.signal = self.signal or signal.Signals(number).name
        os.eventfd_write(self.woken, 1)

    def _waits_for_nodes(self) -> bool:
        """Return whether other nodes are still running: node 0 ends last."""
        return self.nodes.node == 0 and not all(link.is_done for link in self.nodes.links)

    def _look(self) -> None:
        links = {link.connection: link for link in self.nodes.links if not link.is_done}
        remaining = max(0.0, self.looked + LOOK - time.monotonic())
        # Reports are read at once: a rank whose report nobody reads would block on its pipe.
        ready = connection.wait([*self.running, *self.pipes, *links, self.woken], remaining)
        for source in ready:
            if source in links:
                self._take(links[source], *links[source].receive())
            elif source in self.pipes:
                self._read(source)
        # A process started by a model keeps the sentinel of its rank open after the rank has ended.
        sentinels = [key for key, rank in self.running.items() if self._status(rank) is not None]
        ended = [self.running.pop(sentinel) for sentinel in sentinels]
        self.have_ended = self.have_ended or bool(ended)
        if not all(self._has_ended_well(rank) for rank in ended):
            self._fail()
        if self.woken in ready:
            os.eventfd_read(self.woken)
        if time.monotonic() >= self.looked + LOOK:
            self.looked = time.monotonic()
            self._judge()
            for link in links.values():
                link.unheard += LOOK
                if link.unheard > SILENCE:
                    raise RankFailedError(f"{link.title} has been silent for {SILENCE:g} s")
        self._save_or_stop()

    def _read(self, pipe: Any) -> None:
        """Read the report of a rank, if it made one before it closed its pipe."""
        rank = self.pipes[pipe]
        try:
            self.reports[rank] = pipe.recv()
        except (EOFError, OSError):  # OSError: it was killed while it sent a long one
            del self.pipes[pipe]

    def _status(self, rank: int) -> int | None:
        """Return the exit status of a rank, None if it has not ended."""
        process, _ = self.ranks[rank]
        return process.exitcode

    def _has_ended_well(self, rank: int) -> bool:
        self._read_rest(rank)
        return self._status(rank) == 0 and rank in self.reports

    def _read_rest(self, rank: int) -> None:
        """Read what a rank reported last; processes that it forked may keep its pipe open."""
        _, pipe = self.ranks[rank]
        while pipe in self.pipes and pipe.poll():
            self._read(pipe)

    def _tell(self, message: Any, value: Any = None) -> None:
        """Send a message to node 0, or from node 0 to all others.

        Receiving from a node shows whether it is gone.
        """
        for link in self.nodes.links:
            with contextlib.suppress(ConnectionError):
                link.send(message, value)

    def _take(self, link: Any, message: Any, value: Any) -> None:
        """Handle a message from the launcher of another node."""
        match message:
            case "signs":
                link.signs = value
            case "done":
                link.is_done, link.signs = True, []
            case "failed":
                self._fail(value)
            case "ended":
                raise value.error()
            case "interrupted":
                self.signal = self.signal or value
            case "pause":
                self.signal = self.signal or value
                self.pausing = {self.nodes.node}
                self._tell("reached", self.pause.ask(stop=value is not None))
            case "reached":
                self.furthest[link.node] = value
            case "pause after":
                self.pause.answer(value)
            case "pause over":
                self.pausing.discard(link.node)

    def _fail(self, *known: Failure) -> None:
        """Raise the failure that is the cause; the others are complaints about it."""
        time.sleep(GRACE)
        complaints = self._complaints() if self.nodes.node == 0 else []
        found = [*known, *complaints, *self._own_failures()]
        cause = min(found, key=lambda failure: (failure.kind, failure.when))
        if self.nodes.node:
            self._tell("failed", cause)
            link, until = self.nodes.links[0], time.monotonic() + SILENCE
            while link.connection.poll(max(0.0, until - time.monotonic())):
                self._take(link, *link.receive())
        raise cause.error()

    def _own_failures(self) -> Iterator[Failure]:
        """Yield the Failure of each rank of this node that has failed.

        A killed rank sends nothing; the others then complain about their lost connection.
        """
        for rank, (process, _) in self.ranks.items():
            self._read_rest(rank)
            failure = _failure(process, self.reports.get(rank), self.title(rank))
            if failure:
                yield failure

    def _complaints(self) -> list[Failure]:
        """Return the Failures of other nodes, which also wait for the complaints of their ranks."""
        complaints: list[Failure] = []
        links = {link.connection: link for link in self.nodes.links if not link.is_done}
        deadline = time.monotonic() + FROM_NODES
        while links and time.monotonic() < deadline:
            for source in connection.wait(list(links), max(0.0, deadline - time.monotonic())):
                try:
                    message, value = links[source].receive()
                except ConnectionError as error:  # after its last message
                    complaints.append(Failure(GONE, time.time(), str(error)))
                    del links[source]
                    continue
                if message == "failed":
                    complaints.append(value)
                if message in ("failed", "done"):  # its last message
                    del links[source]
        return complaints

    def _judge(self) -> None:
        """Check that some rank has made progress.

        Counts looks, not seconds: while this process itself was stopped, the ranks were not idle.
        """
        signs = [self._sign(place, rank) for place, rank in enumerate(self.ranks)]
        signs = [sign for sign in signs if sign]
        if self.nodes.node:
            self._tell("signs", signs)
            return
        self._tell("alive")
        signs += [sign for link in self.nodes.links for sign in link.signs]
        beats = [(sign.pid, sign.beat) for sign in signs]
        self.idle = 0.0 if self.have_ended or beats != self.before else self.idle + LOOK
        self.before, self.have_ended = beats, False
        if signs and self.idle >= self.timeout:
            raise RankFailedError(_who_hangs(signs, self.idle))
        wait_in_vain = all(sign.phase in TOGETHER and not sign.is_stopped for sign in signs)
        # In one place they are only slow, as in a broadcast of much.
        wait_in_vain = wait_in_vain and len({sign.phase for sign in signs}) > 1
        if signs and self.idle >= IN_VAIN and wait_in_vain:
            where = ", ".join(f"{sign.title} in {sign.phase}" for sign in signs)
            raise RankFailedError(f"the workers wait for each other in different places: {where}")

    def _sign(self, place: int, rank: int) -> Any:
        process, _ = self.ranks[rank]
        if process.sentinel not in self.running:
            return None
        when, phase = self.clocks[place].last()
        silent, is_stopped = time.monotonic() - when, _is_stopped(process.pid)
        return Sign(self.title(rank), process.pid, phase, when, silent, is_stopped)

    def _save_or_stop(self) -> None:
        """Have the workers save if a checkpoint is due or they have to stop."""
        if self.save_every is None:
            return
        if self.signal and self.stop_until == math.inf:
            self.stop_until = time.monotonic() + STOPPING
            self.idle = 0.0
            if self.nodes.node:
                self._tell("interrupted", self.signal)
        if time.monotonic() > self.stop_until:
            raise KeyboardInterrupt(self.signal)
        if self.nodes.node in self.pausing and not self.pause.is_going_on:
            self.pausing.discard(self.nodes.node)
            if self.nodes.node:
                self._tell("pause over")
        if self.nodes.node == 0:
            self._pause()

    def _pause(self) -> None:
        """Ask all nodes for a pause if one is due, and answer once all have reported their step.

        The previous pause has to be over on every node, or a worker would take the new one for it.
        """
        stopping = self.signal is not None
        is_due = self.save_every is not None and self.pause.age > self.save_every
        if not self.pausing and (stopping or is_due):
            self._tell("pause", self.signal)
            self.pausing = set(range(self.nodes.count))
            self.furthest = {0: self.pause.ask(stopping)}
        if len(self.furthest) == self.nodes.count:
            furthest = max(self.furthest.values())
            self.furthest = {}
            self._tell("pause after", furthest)
            self.pause.answer(furthest)


def _failure(process: Any, report: Any, title: Any) -> Failure | None:
    """Return the Failure of a rank, None if it has not failed.

    Args:
        report: what it reported; None: nothing yet.
    """
    if process.exitcode is not None and process.exitcode < 0:
        text = f"{title} (process {process.pid}) {how_it_ended(process.exitcode)}"
        return Failure(KILLED, time.time(), text)
    if report and report.problem:
        text = f"{title} failed:\n{report.problem}"
        return Failure(report.kind, report.when, text, report.cause)
    if process.exitcode is not None and not report:
        # For example by os._exit() in a model or a library.
        text = f"{title} {how_it_ended(process.exitcode)} before its training did"
        return Failure(RAISED, 0.0, text)
    return None


def _who_hangs(signs: list[Sign], seconds: float) -> str:
    """Describe the rank that keeps the others waiting.

    It is a stopped one, or the first that fell silent at work.
    """

    def order(sign: Sign) -> tuple[Any, ...]:
        is_waiting, is_alone = sign.phase in WAITING, sign.phase in ALONE
        return not sign.is_stopped, is_waiting, not is_alone, -sign.silent

    sign = min(signs, key=order)
    how = "is stopped by a signal" if sign.is_stopped else "hangs"
    return (
        f"no rank made any progress for {seconds:g} s: {sign.title} (process {sign.pid}) {how}, "
        f"in the phase {sign.phase}"
    )


def _is_stopped(pid: int) -> bool:
    """Return whether a process has been stopped, for example by SIGSTOP (proc_pid_stat(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"


def title(rank: int, workers: int, nodes: Nodes) -> str:
    """Return the name of a rank in messages."""
    name = f"worker {rank} (rank {rank})" if rank < workers else f"server (rank {rank})"
    return name if nodes.count == 1 else f"{name} on node {nodes.node} ({platform.node()})"
