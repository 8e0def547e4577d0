"""The ranks of a run: how they are forked, watched and ended."""

from __future__ import annotations

import errno
import gc
import math
import mmap
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from allcores.machine import cores
from allcores.machine.lifetime import die_with_parent, signals_to_stop
from allcores.parallel import exchange, supervision
from allcores.parallel.clock import ENTRY, Clock
from allcores.parallel.exchange import Exchange
from allcores.parallel.nodes import Nodes
from allcores.parallel.pause import Pause
from allcores.parallel.rendezvous import LocalRendezvous, RendezvousOverNodes
from allcores.parallel.reports import A_COMPLAINT, LONGEST, RAISED, Report, pickled
from allcores.parallel.shared_memory import SharedMemory
from allcores.parallel.world import COLLECTIVE_TIMEOUT, World


def run_ranks(
    target: Callable[[World], Any],
    workers: int,
    servers: int,
    threads: int,
    once_forked: Callable[[], None] | None = None,
    pins: list[int] | None = None,
    timeout: float = math.inf,
    save_every: float | None = None,
    nodes: Nodes | None = None,
) -> list[Any]:
    """Run target(world) on every rank, each in a process forked from this one.

    Forking after `import torch` but before any tensor work costs milliseconds where a fresh
    interpreter costs seconds, and the processes share the pages of what is loaded.

    Args:
        workers, servers: numbers on all nodes together; `workers` is a multiple of the nodes.
        once_forked: called when all ranks of this node have been forked, if given.
        pins: cores to pin the ranks of this node to, `threads` for each in turn.
        timeout: the run fails if no rank makes progress for so many seconds.
        save_every: seconds after which the workers have to save. They also do so before SIGINT,
            SIGTERM or SIGUSR1 stops them. None: the target does not save on demand.
        nodes: what meet() returned; None: this node only.

    Returns:
        What target() returned on each rank of this node, in the order of ranks_of().

    Raises:
        RankFailedError: a rank raised, died or hangs. The others have been killed by then.
        KeyboardInterrupt: a signal stopped the run.
    """
    nodes = nodes or Nodes()
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, _allow_many_files())
        rendezvous = (LocalRendezvous if nodes.count == 1 else RendezvousOverNodes).create(nodes)
        opened.callback(rendezvous.close)
        worlds = _worlds(workers, servers, threads, pins, nodes, opened)
        ranks: dict[int, tuple[Any, Any]] = {}
        opened.callback(_kill, ranks)
        with _frozen():
            for world in worlds:
                ranks[world.rank] = _fork(target, world, rendezvous, nodes)
        if once_forked:  # threads may be started from here on, not earlier
            once_forked()
        title = partial(supervision.title, workers=workers, nodes=nodes)
        clocks, pause = [world.clock for world in worlds], worlds[0].pause
        watcher = supervision.Supervisor(ranks, title, clocks, pause, nodes, timeout, save_every)
        watcher.watch()
        return [watcher.reports[world.rank].value for world in worlds]


def _worlds(
    workers: int,
    servers: int,
    threads: int,
    pins: list[int] | None,
    nodes: Nodes,
    opened: ExitStack,
) -> list[World]:
    """Return the World of each rank of this node; what has to be closed goes to `opened`."""
    local_ranks, workers_on_node = ranks_of(nodes, workers, servers), workers // nodes.count
    oversubscribed = len(local_ranks) * threads > cores.allowed()
    pause, shared = Pause(workers_on_node), SharedMemory()
    opened.callback(shared.close)
    exchanges = partial(
        Exchange,
        mmap.mmap(-1, exchange.size_of(workers_on_node)),
        local_ranks[:workers_on_node],
        spin=0 if oversubscribed else exchange.SPIN,
        timeout=COLLECTIVE_TIMEOUT.total_seconds(),
    )
    phases = memoryview(mmap.mmap(-1, len(local_ranks) * ENTRY.size))
    worlds = [
        World(
            rank,
            workers,
            servers,
            threads=threads,
            pins=pins and pins[place * threads : (place + 1) * threads],
            nodes=nodes.count,
            clock=Clock(phases[place * ENTRY.size : (place + 1) * ENTRY.size]),
            shared=shared,
            pause=pause,
        )
        for place, rank in enumerate(local_ranks)
    ]
    for place, world in enumerate(worlds[:workers_on_node]):
        world.exchange = exchanges(place)
    return worlds


@contextmanager
def _frozen() -> Iterator[None]:
    """Keep collections of the ranks from touching shared pages, unless that was done before."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _kill(ranks: dict[int, tuple[Any, Any]]) -> None:
    for process, _ in ranks.values():
        process.kill()
        process.join()


# An OSError with one of these says all that is to be known: a full disk, a missing folder.
SAYING_ALL = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOENT, errno.EACCES, errno.EPERM)
}


def ranks_of(nodes: Nodes, workers: int, servers: int) -> list[int]:
    """Return the ranks of this node, workers first.

    Each node has equally many workers, and servers in turn.
    """
    workers_on_node = workers // nodes.count
    first = nodes.node * workers_on_node
    servers_on_node = range(workers + nodes.node, workers + servers, nodes.count)
    return [*range(first, first + workers_on_node), *servers_on_node]


def _allow_many_files() -> tuple[int, int]:
    """Raise the limit of open files as far as possible, and return what it was.

    W workers need W - 1 connections each.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    return before


def _fork(
    target: Callable[[World], Any], world: World, rendezvous: Any, nodes: Nodes
) -> tuple[Any, Any]:
    """Fork the process of a rank; return it and the pipe on which it reports how it ended."""
    fork = get_context("fork")
    report, child_end = fork.Pipe(duplex=False)
    process = fork.Process(target=_run_rank, args=(target, world, rendezvous, child_end, nodes))
    process.start()
    child_end.close()
    return process, report


def _run_rank(
    target: Callable[[World], Any], world: World, rendezvous: Any, report: Any, nodes: Nodes
) -> None:
    """Run target(world) in the process of a rank, and report how it ended."""
    die_with_parent(parent_process().pid)  # type: ignore[union-attr]
    nodes.close()  # its connections are for the launcher only
    if world.pins:
        os.sched_setaffinity(0, world.pins)
    for number in signals_to_stop():
        signal.signal(number, _leave_to_parent)
    os.register_at_fork(
        before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, signals_to_stop()),
        after_in_parent=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, signals_to_stop()),
        after_in_child=_heed_signals,
    )
    try:
        torch.set_num_threads(world.threads)
        world.join(rendezvous)
        value = target(world)
        dist.destroy_process_group()
        report.send(Report(time.time(), value=value))
        _leave(0)
    except BaseException as error:
        says_all = isinstance(error, OSError) and error.errno in SAYING_ALL
        problem = f"{type(error).__name__}: {error}" if says_all else traceback.format_exc()
        _fail(report, problem, error)


def _leave_to_parent(number: int, frame: FrameType | None) -> None:
    """Do nothing: the parent also gets the signal, and ends the run.

    Unlike SIG_IGN, programs that a rank starts do not inherit this.
    """


def _heed_signals() -> None:
    """End a process that a rank forks when it is told to, as usual."""
    for number in signals_to_stop():
        signal.signal(number, signal.SIG_DFL)
    # Blocked while it was forked, since Python drops what comes then.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals_to_stop())


def _fail(report: Any, problem: str, error: BaseException) -> None:
    if len(problem) > LONGEST:
        half = LONGEST // 2
        problem = f"{problem[:half]}\n[...]\n{problem[-half:]}"
    # As of a lost connection to a rank that has failed.
    is_complaint = isinstance(error, RuntimeError | ConnectionError)
    kind = A_COMPLAINT if is_complaint else RAISED
    report.send(Report(time.time(), problem, kind, pickled(error)))
    _leave(1)


def _leave(status: int) -> None:
    """Exit at once: an orderly exit could wait for other ranks, or for threads of the model."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:  # the program may have none, or close it
            stream.flush()
    os._exit(status)
