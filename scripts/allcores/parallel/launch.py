"""World: this process among those of its run; and how these are forked, watched and ended."""

import math
import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from multiprocessing import get_context

import torch
import torch.distributed as dist

from allcores.machine import cores
from allcores.machine.costs import Clock
from allcores.machine.lifetime import die_with_parent
from allcores.parallel import supervision
from allcores.parallel.barrier import Barrier
from allcores.parallel.failures import DivergedError
from allcores.parallel.heartbeat import Heartbeats
from allcores.parallel.shared_memory import SharedMemory

# Timeout of gloo and the barrier: in effect none. The parent ends a run that makes no progress.
COLLECTIVE_TIMEOUT = timedelta(days=7)
# Seconds to spin at a barrier before sleeping.
SPIN = 1e-3


@dataclass
class World:
    """This process among those of its run: ranks 0 .. workers - 1 train, those after them serve.

    Attributes:
        threads: intra-op threads of this process.
        pins: the cores that this process is kept to; None: wherever the system has it.
        clock: seconds per phase of this process.
        shared: memory and a lock that all processes of the run share.
        worker_barrier: barrier() of the workers.
        worker_group: torch's process group of the workers.
    """

    rank: int
    workers: int
    servers: int = 0
    threads: int = 1
    pins: list[int] | None = None
    clock: Clock = field(default_factory=Clock)
    shared: SharedMemory | None = None
    worker_barrier: Barrier | None = None
    worker_group: dist.ProcessGroup | None = None

    @property
    def size(self):
        return self.workers + self.servers

    @property
    def is_server(self):
        return self.rank >= self.workers

    def all_reduce(self, tensor):
        """Sum a tensor over the workers, in place, and return it."""
        if self.workers > 1:
            dist.all_reduce(tensor, group=self.worker_group)
        return tensor

    def average(self, tensors):
        """Average tensors over the workers, in place, in one exchange."""
        tensors = list(tensors)
        if self.workers == 1 or not tensors:
            return
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        self.all_reduce(flat).div_(self.workers)
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.detach().copy_(part.view_as(tensor))

    def broadcast(self, value):
        """What rank 0 has for `value`, on every worker: tensors and plain values."""
        box = [value]
        if self.workers > 1:
            dist.broadcast_object_list(box, src=0, group=self.worker_group)
        return box[0]

    def send(self, tensor, rank, tag=0):
        """Begin to send a tensor to a rank; wait() on what this returns before changing it."""
        return dist.group.WORLD.send([tensor], rank, tag)

    def receive(self, tensor, rank, tag=0):
        """Begin to receive a tensor from a rank; wait() on what this returns before using it.

        Those of one sender and tag arrive in the order in which they were sent.
        """
        return dist.group.WORLD.recv([tensor], rank, tag)

    def receive_from_any(self, tensor):
        """Receive a tensor with tag 0 from whoever sends one, and return that rank."""
        return dist.recv(tensor)

    def send_value(self, value, rank):
        """Send plain values and tensors."""
        dist.send_object_list([value], rank)

    def receive_value(self, rank):
        box = [None]
        dist.recv_object_list(box, rank)
        return box[0]

    def barrier(self):
        """Wait for every worker; all see afterwards what each has written to shared memory."""
        self.worker_barrier.wait(self.rank)

    def join(self, rendezvous):
        """Form the gloo process groups: file rendezvous, loopback only, ports chosen by the system.

        Args:
            rendezvous: path of a file that all ranks share.
        """
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        store = dist.FileStore(str(rendezvous), self.size)
        dist.init_process_group(
            "gloo", store=store, rank=self.rank, world_size=self.size, timeout=COLLECTIVE_TIMEOUT
        )
        self.worker_group = dist.group.WORLD
        if self.servers:
            self.worker_group = dist.new_group(
                list(range(self.workers)), timeout=COLLECTIVE_TIMEOUT
            )
        # A rank that is connected to all others may still leave before they are connected to
        # each other, and gloo would take that for a crash.
        dist.barrier()


def run_ranks(target, workers, servers, threads, once_forked, pins=None, timeout=math.inf):
    """Run target(world) on every rank, each in a process forked from this one.

    Forking after `import torch` but before any tensor work costs milliseconds where a fresh
    interpreter costs seconds, and the processes share the pages of what is loaded.

    Args:
        once_forked: called when all are there.
        pins: cores to keep the ranks to, `threads` for each in turn.
        timeout: seconds without any progress of any rank after which the run is ended.

    Raises:
        RankFailedError: a rank raised, died or hangs. The others have been killed by then.
        DivergedError: a rank says so of the training.
    """
    _allow_many_files()
    fork, shared = get_context("fork"), SharedMemory()
    oversubscribed = (workers + servers) * threads > cores.allowed()
    barrier = Barrier(workers, 0 if oversubscribed else SPIN, COLLECTIVE_TIMEOUT.total_seconds())
    heartbeats = Heartbeats(workers + servers)
    # A file without a name: nothing is left of it, however this process ends.
    rendezvous = os.memfd_create("allcores-rendezvous")
    ranks = {}
    try:
        for rank in range(workers + servers):
            mine = pins and pins[rank * threads : (rank + 1) * threads]
            clock = Clock(partial(heartbeats.beat, rank))
            world = World(rank, workers, servers, threads, mine, clock, shared, barrier)
            report, child_end = fork.Pipe(duplex=False)
            process = fork.Process(target=_run_rank, args=(target, world, rendezvous, child_end))
            process.start()
            child_end.close()
            ranks[rank] = process, report
        once_forked()  # threads may be started from here on, not earlier
        supervision.watch(ranks, workers, heartbeats, timeout)
    finally:
        for process, _ in ranks.values():
            process.kill()
            process.join()
        shared.close()
        barrier.close()
        os.close(rendezvous)


def _allow_many_files():
    """Let this process open as many files as it may: W workers need W - 1 connections each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _run_rank(target, world, rendezvous, report):
    """What the process of a rank does."""
    die_with_parent()
    if world.pins:
        os.sched_setaffinity(0, world.pins)
    # Both reach the parent, too, and that ends the run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        torch.set_num_threads(world.threads)
        world.join(f"/proc/self/fd/{rendezvous}")
        target(world)
        dist.destroy_process_group()
    except DivergedError as error:
        _fail(report, error)
    except OSError as error:  # a full disk, a folder that is gone: the line says it all
        _fail(report, f"{type(error).__name__}: {error}")
    except BaseException:
        _fail(report, traceback.format_exc())


def _fail(report, cause):
    report.send((time.monotonic(), cause))
    sys.stdout.flush()
    os._exit(1)  # no orderly shutdown: it could wait for the other ranks
