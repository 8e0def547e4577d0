"""Strategies for any training loop: run() forks workers, and each calls one function.

    import allcores, torch

    def adamw(parameters):
        return torch.optim.AdamW(parameters, lr=1e-3)

    def train(worker, strategy):
        model = Net()
        shared = worker.share(model, adamw, strategy)
        for epoch in range(10):
            for (inputs, targets), weight in worker.batches(dataset, batch_size=256, epoch=epoch):
                loss = weight * criterion(shared.model(inputs), targets)
                loss.backward()
                shared.step()
            shared.synchronize()
        return loss.item()

    losses = allcores.run(train, strategy, workers=8)

The workflow's own loop also calls Worker.share(), and its checkpoints contain what
SharedModel.save() writes. It adds what needs a Run: resuming in the middle of an epoch, early
stopping, averages of weights, times per phase.
"""

from __future__ import annotations

import importlib
import os
import pickle
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing import current_process, get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from allcores.loop import named
from allcores.loop.parts import parts
from allcores.loop.shared_model import SharedModel, pickled, restored
from allcores.machine import allocator, cores, leases
from allcores.parallel import launch, nodes
from allcores.parallel.collectives import is_moved_here
from allcores.parallel.optimizers import OptimizerMaker
from allcores.parallel.reports import RankFailedError
from allcores.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from allcores.parallel.world import World


__all__ = ["RankFailedError", "SharedModel", "Worker", "run"]

# Seconds; the default timeout of gloo's collectives.
TIMEOUT = 1800.0
# Seconds that a forked process gets for a computation of a millisecond.
PROBE = 5.0


class _ServedError(Exception):
    """Leaves the function on a server that is done: the rest of it is for workers."""


def run(
    function: Callable[..., Any],
    *arguments: Any,
    workers: int | None = None,
    servers: int = 0,
    threads: int = 1,
    pinning: bool = True,
    timeout: float = TIMEOUT,
    count_nodes: int = 1,
    node: int = 0,
    rendezvous: str | Path | None = None,
    **options: Any,
) -> list[Any]:
    """Call function(worker, *arguments, **options) in forked processes, each with a Worker.

    Args:
        workers: number of workers, on all nodes together; None: one per `threads` cores.
        servers: number of further processes, for strategies with servers. On these, share() never
            returns.
        threads: threads of torch in each process.
        pinning: pin each process to its own cores, if enough are free.
        timeout: the run fails if no process makes progress for so many seconds. Progress is
            a batch, a step(), or another call of Worker or SharedModel that workers exchange in.
        count_nodes, node: number of machines, each of which calls run(), and number of this one.
        rendezvous: file by which they find each other, on a file system that all share.

    Returns:
        What the function returned on each worker of this node, in order. It has to be picklable.

    Raises:
        ValueError: the number of workers, servers or nodes is impossible, or threads > 1 although
            torch has already used threads in this process.
        TimeoutError, ConnectionError: the nodes do not find each other, or one is gone.
        RankFailedError: a process raised, was killed or hangs. The message names it, and
            has its traceback if it raised. The others have been killed by then.
    """
    if not 0 <= node < count_nodes or (count_nodes > 1 and rendezvous is None):
        raise ValueError(
            "expected a node from 0 to count_nodes - 1 and, for several, rendezvous=FILE on a file "
            f"system that all share; found node {node} of {count_nodes}, rendezvous={rendezvous}"
        )
    if current_process().daemon:
        raise ValueError(
            "a daemonic process, such as one of multiprocessing.Pool, cannot have workers; call "
            "run() in the main process, or in a multiprocessing.Process or ProcessPoolExecutor"
        )
    if dist.is_initialized():
        raise ValueError("call run() outside of torch.distributed and of another run()")
    if not _is_above_0(timeout):
        raise ValueError(f"expected a timeout of more than 0 seconds; found {timeout!r}")
    if workers is None:
        workers = max(1, cores.allowed() // threads) * count_nodes
    counts = workers, servers, threads
    are_whole = all(isinstance(count, int) for count in counts)
    if not are_whole or workers < 1 or servers < 0 or threads < 1 or workers % count_nodes:
        raise ValueError(
            f"expected whole numbers: workers >= 1 that {count_nodes} nodes share evenly, servers "
            f">= 0 and threads >= 1; found {workers!r}, {servers!r} and {threads!r}"
        )
    if threads > 1:
        _check_threads_after_fork()
    with nodes.meet(count_nodes, node, rendezvous) as met:
        here = len(launch.ranks_of(met, workers, servers)) * threads
        with leases.leased(here) if pinning else nullcontext() as pins:
            return run_workers(
                lambda worker: function(worker, *arguments, **options),
                workers,
                servers,
                threads,
                pins=pins,
                timeout=timeout,
                nodes=met,
            )


def run_workers(
    function: Callable[[Worker], Any], workers: int, servers: int, threads: int, **how: Any
) -> list[Any]:
    """Call function(worker) in forked ranks, on cores and nodes that the caller holds.

    Args:
        workers, servers, threads, how: see launch.run_ranks(), also for what is raised.

    Returns:
        What the function returned on each worker of this node, in order.
    """
    # Creating an optimizer imports it, in 1.2 s: once here instead of in each worker.
    importlib.import_module("torch._dynamo")
    values = launch.run_ranks(partial(_call, function), workers, servers, threads, **how)
    return [pickle.loads(value) for value in values if value is not None]


def _is_above_0(value: Any) -> bool:
    """Return whether a value is a number above 0. NaN is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _check_threads_after_fork() -> None:
    """Raise a ValueError if forked processes could not use threads.

    Some OpenMP libraries (GNU's) wait forever in a process forked from one where they have used
    threads.
    """
    probe = get_context("fork").Process(target=_use_threads)
    probe.start()
    probe.join(PROBE)
    if probe.exitcode is None:
        probe.kill()
        raise ValueError(
            "torch has used threads in this process, so processes forked from it can have only one "
            "thread; call run() before that, in a fresh process, or with threads=1"
        )


def _use_threads() -> None:
    torch.set_num_threads(2)
    torch.zeros(1 << 20).add_(1)
    os._exit(0)


def _call(function: Callable[[Worker], Any], world: World) -> bytes | None:
    worker = Worker(world)
    world.clock.beat("compute")  # not timed: the workflow's loop times its epochs only
    try:
        value = function(worker)
    except _ServedError:
        return None
    if world.is_server:
        raise ValueError("expected the function to call share(), which a server serves")
    worker.close()
    # Pickled here: a tensor sent as such would lie in memory of this process, which ends.
    return pickled(value)


class Worker:
    """A process of a run(), as its function sees it.

    torch.distributed's default group also exists: gloo, with all processes.

    Attributes:
        rank: its number, from 0.
        workers: number of workers.
        world: what a strategy sees. It may change without notice.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        # What the function still holds: a loop over folds shares many models, one after the other.
        self._shared: list[weakref.ref[SharedModel]] = []
        self._served: SharedModel | None = None
        self.rank, self.workers = world.rank, world.workers

    def share(
        self,
        model: nn.Module,
        make_optimizer: Callable[[list[Tensor]], torch.optim.Optimizer],
        strategy: str | type[Strategy],
        *,
        clip_norm: float | None = None,
        resume: str | Path | dict[str, Any] | None = None,
        **options: Any,
    ) -> SharedModel:
        """Train one model with all workers. Every worker calls it, with an equal model.

        Args:
            model: its weights become those of rank 0.
            make_optimizer: function of a list of parameters that returns one of torch's optimizers,
                with one group. A strategy that updates all weights as one vector passes slices of
                it, so the optimizer has to treat every weight by itself.
            strategy: a name, or a class that follows the contract in strategies/base.py.
            clip_norm: gradients with a larger Euclidean norm are scaled down to it.
            resume: file that SharedModel.save() wrote, with any number of workers; or what
                SharedModel.state() returned.
            options: of the strategy.

        Raises:
            ValueError: there is no such strategy, or it cannot train this model.
            TypeError: it has no such option.
        """
        cls = named.chosen(strategy, options, self.world)
        if clip_norm is not None and not _is_above_0(clip_norm):
            raise ValueError(f"clip_norm: found {clip_norm!r}; expected a number above 0")
        if self._shared and self.world.servers:
            raise ValueError("expected one share() in a run with servers, which serve one model")
        alive = [shared for one in self._shared if (shared := one()) is not None]
        used = {part for shared in alive for part in shared.strategy.module.parameters()}
        if used & set(model.parameters()):
            raise ValueError("expected another model: parameters of this one are already shared")
        self.world.clock.beat("share")
        _refuse_unusual_memory(model)
        problem = cls.refusal(model, **options)
        if problem:
            raise ValueError(f"{cls.__name__} cannot train this model: it {problem}")
        if self.world.size > 1:
            _take_first(model)
        made = cls(model, OptimizerMaker(make_optimizer, clip_norm), self.world, **options)
        _check_optimizer(made)
        saved = restored(made, resume, self.world.servers) if resume else {}
        if self.world.is_server:
            made.serve()
            raise _ServedError
        self.world.clock.beat("compute")
        shared = SharedModel(made, self.world, saved)
        self._shared = [*map(weakref.ref, [*alive, shared])]
        if self.world.servers:
            self._served = shared
        allocator.keep_freed_memory()  # now that all is set up
        return shared

    def batches(
        self,
        data: Any,
        batch_size: int | None = None,
        *,
        epoch: int = 0,
        seed: int = 0,
        shuffle: bool = True,
    ) -> Iterator[tuple[Any, float]]:
        """Yield (this worker's part of a batch, its weight), for one pass through the data.

        The batches are the same for any number of workers; each worker gets a part of every batch.
        `weight` times the mean loss of the part, averaged over the workers, is the mean loss of the
        batch. It is 1 if the batch divides evenly, and 0 for a worker that would have no sample and
        gets another one's.

        Args:
            data: a tensor or array, or a tuple of some of one length; a Dataset; or a DataLoader,
                whose sampler and batch size are used. Each worker reads all of an IterableDataset
                and keeps its part.
            batch_size: samples per batch, of all workers together.
            epoch, seed: decide the order of tensors, arrays and Datasets.

        Raises:
            ValueError: the batch size is missing, or given twice.
        """
        clock = self.world.clock
        clock.enter("data")
        for batch in parts(data, batch_size, epoch, seed, shuffle, self):
            clock.enter("compute")
            yield batch
            clock.enter("data")
        clock.enter("compute")

    def sum(self, number: float) -> float:
        """Return the sum of a number over the workers."""
        total = torch.tensor([0.0 if self.world.is_server else number], dtype=torch.float64)
        with self._waiting("sum"):
            dist.all_reduce(total, group=self._group)
        return float(total)

    def mean(self, number: float) -> float:
        """Return the mean of a number over the workers."""
        return self.sum(number) / self.workers

    def broadcast(self, value: Any) -> Any:
        """Return the `value` of rank 0, on every worker."""
        box: list[Any] = [pickled(value) if self.rank == 0 else None]
        with self._waiting("broadcast"):
            dist.broadcast_object_list(box, src=0, group=self._group)
        return pickle.loads(box[0])

    def barrier(self) -> None:
        """Wait for all workers."""
        with self._waiting("barrier"):
            dist.barrier(self._group)

    @contextmanager
    def _waiting(self, phase: str) -> Iterator[None]:
        """Mark that this worker waits for others, so that it is not blamed if one hangs.

        Args:
            phase: one of supervision.TOGETHER.
        """
        self.world.clock.enter(phase)
        yield
        self.world.clock.enter("compute")

    @property
    def _group(self) -> Any:
        """The process group of the workers; until share(), that of all processes with servers."""
        return self.world.worker_group if self._shared else dist.group.WORLD

    def close(self) -> None:
        """Stop the servers once no worker needs them; called by run()."""
        with self._waiting("end"):
            dist.barrier(self._group)
        if self._served:
            self._served.strategy.close()


def _check_optimizer(strategy: Strategy) -> None:
    name, groups = type(strategy.optimizer).__name__, len(strategy.optimizer.param_groups)
    if groups != 1:
        raise ValueError(
            f"expected an optimizer with one group of parameters, found {groups}; share parts of "
            "the model by themselves, each with its own, or add decay of some weights to the loss"
        )
    if name in named.UNUSABLE_OPTIMIZERS:
        raise ValueError(f"{name} needs more than gradients: a closure, or one kind of weights")
    if strategy.flat and name in named.WHOLE_TENSOR_OPTIMIZERS:
        raise ValueError(
            f"{name} looks at whole tensors; this strategy updates all weights as one vector"
        )


def _refuse_unusual_memory(model: nn.Module) -> None:
    """Raise a ValueError if a weight or buffer has no memory of its own on the CPU."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found = None
        if tensor.device.type != "cpu":
            found = f"on the device {tensor.device}"
        elif not is_moved_here(tensor):
            found = "sparse, quantized, or a conjugate or negative view"
        elif any(
            n > 1 and step == 0 for n, step in zip(tensor.shape, tensor.stride(), strict=True)
        ):
            found = "expanded: several of its elements share one place"
        if found:
            raise ValueError(f"{name} is {found}; expected a plain tensor, as from clone()")


def _take_first(model: nn.Module) -> None:
    """Copy the weights and buffers of rank 0's model into this one."""
    tensors = [*model.parameters(), *model.buffers()]
    found = [f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in tensors]
    box = [found]
    dist.broadcast_object_list(box, src=0)
    if found != box[0]:
        raise ValueError(f"expected equal models; rank 0 has {box[0]}, this one {found}"[:1000])
    with torch.no_grad():
        for tensor in tensors:
            whole = tensor.contiguous()  # strides may differ between ranks
            # As bytes, since gloo does not know every dtype.
            dist.broadcast(whole.view(-1).view(torch.uint8), src=0)
            tensor.copy_(whole)
