"""The ranks of a run: how they are forked, watched and ended."""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from allcores.machine import cores
from allcores.machine.costs import Clock
from allcores.machine.lifetime import die_with_parent, signals_to_stop
from allcores.parallel import supervision
from allcores.parallel.barrier import Barrier
from allcores.parallel.failures import DivergedError, Report
from allcores.parallel.heartbeat import Heartbeats
from allcores.parallel.nodes import Nodes
from allcores.parallel.pause import Pause
from allcores.parallel.rendezvous import LocalRendezvous, RendezvousOverNodes
from allcores.parallel.shared_memory import SharedMemory
from allcores.parallel.world import COLLECTIVE_TIMEOUT, World

# Seconds to spin at a barrier before sleeping.
SPIN = 1e-3
# Characters of the text in which a rank reports its failure; a longer one loses its middle.
LONGEST_CAUSE = 20_000


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
        DivergedError: a rank reports that the training diverged.
        KeyboardInterrupt: a signal stopped the run.
    """
    files = _allow_many_files()
    nodes = nodes or Nodes()
    shared = SharedMemory()
    local_ranks = ranks_of(nodes, workers, servers)
    oversubscribed = len(local_ranks) * threads > cores.allowed()
    workers_on_node = workers // nodes.count
    spin = 0 if oversubscribed else SPIN
    barrier = Barrier(workers_on_node, spin, COLLECTIVE_TIMEOUT.total_seconds())
    heartbeats, pause = Heartbeats(len(local_ranks)), Pause(workers_on_node)
    rendezvous = (LocalRendezvous if nodes.count == 1 else RendezvousOverNodes).create(nodes)
    worlds = [
        World(
            rank,
            workers,
            servers,
            threads,
            pins and pins[place * threads : (place + 1) * threads],
            nodes.count,
            Clock(partial(heartbeats.beat, place)),
            shared,
            barrier,
            pause,
        )
        for place, rank in enumerate(local_ranks)
    ]
    ranks = {}
    try:
        gc.freeze()  # the ranks' collections then leave the shared pages alone
        for world in worlds:
            ranks[world.rank] = _fork(target, world, rendezvous, nodes)
        gc.unfreeze()
        if once_forked:  # threads may be started from here on, not earlier
            once_forked()
        title = partial(supervision.title, workers=workers, nodes=nodes)
        watcher = supervision.Supervisor(
            ranks, title, heartbeats, pause, nodes, timeout, save_every
        )
        watcher.watch()
        return [watcher.reports[rank].value for rank in local_ranks]
    finally:
        for process, _ in ranks.values():
            process.kill()
            process.join()
        shared.close()
        barrier.close()
        rendezvous.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, files)


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
    die_with_parent()
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
        report.send(Report(time.time(), None, value))
        _leave(0)
    except DivergedError as error:
        _fail(report, error)
    except OSError as error:  # a full disk, a missing folder: no traceback is needed
        _fail(report, f"{type(error).__name__}: {error}")
    except BaseException:
        _fail(report, traceback.format_exc())


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


def _fail(report: Any, cause: str | DivergedError) -> None:
    if isinstance(cause, str) and len(cause) > LONGEST_CAUSE:
        half = LONGEST_CAUSE // 2
        cause = f"{cause[:half]}\n[...]\n{cause[-half:]}"
    report.send(Report(time.time(), cause))
    _leave(1)


def _leave(status: int) -> None:
    """Exit at once: an orderly exit could wait for other ranks, or for threads of the model."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
