"""The strategies in anybody's training loop: run() forks workers, each calls one function.

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

The workflow is the first user: its loop shares a model by Worker.share() and saves the state that
SharedModel.save() writes to files. It adds what needs a Run: resuming in the middle of an epoch,
early stopping, averages of weights, times per phase.
"""

from __future__ import annotations

import importlib
import os
import pickle
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
from allcores.machine import cores, leases
from allcores.parallel import launch, nodes
from allcores.parallel.combining import is_moved_here
from allcores.parallel.failures import RankFailedError
from allcores.parallel.optimizers import OptimizerMaker
from allcores.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from allcores.parallel.world import World


__all__ = ["RankFailedError", "SharedModel", "Worker", "run"]

# As long as a collective of gloo's waits for others.
TIMEOUT = 1800.0
# Seconds for which a forked process may compute for a millisecond.
PROBE = 5.0


class _ServedError(Exception):
    """A server has done its work; the rest of the function is for workers."""


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
    """Call function(worker, *arguments, **options) in processes forked from this one, a Worker
    each.

    Args:
        workers: how many, on all nodes together; None: one for every `threads` cores.
        servers: how many more processes, for strategies that have servers; in them the function
            ends where it calls share().
        threads: of torch in each process.
        pinning: keep each process to cores of its own, if the machine has enough free ones.
        timeout: seconds without progress of any process after which the run is ended.
        count_nodes, node: number of machines, each of which calls run(), and which of them this is.
        rendezvous: file by which they find each other, on a file system that all share.

    Returns:
        What the function returned on each worker of this node, in their order; whatever can be
        pickled.

    Raises:
        ValueError: the number of workers, servers or nodes is impossible, or threads > 1 where
            torch has already used threads in this process.
        failures.RankFailedError: a process raised, was killed or hangs; the text names it, with its
            traceback. The others have been killed by then.
    """
    if not 0 <= node < count_nodes or (count_nodes > 1 and rendezvous is None):
        raise ValueError(
            "expected a node from 0 to count_nodes - 1, and, of several, rendezvous=FILE on a file "
            f"system that they share; found node {node} of {count_nodes}, {rendezvous}"
        )
    if current_process().daemon:
        raise ValueError(
            "a daemonic process, as of multiprocessing.Pool, cannot have workers; call run() in "
            "the main process, or in a multiprocessing.Process or ProcessPoolExecutor"
        )
    if dist.is_initialized():
        raise ValueError("expected a process outside of torch.distributed and of another run()")
    if not _is_seconds(timeout):
        raise ValueError(f"expected a timeout of more than 0 seconds; found {timeout!r}")
    if workers is None:
        workers = max(1, cores.allowed() // threads) * count_nodes
    counts = workers, servers, threads
    are_whole = all(isinstance(count, int) for count in counts)
    if not are_whole or workers < 1 or servers < 0 or threads < 1 or workers % count_nodes:
        raise ValueError(
            f"expected workers >= 1 that {count_nodes} nodes share evenly, servers >= 0 and "
            f"threads >= 1, whole numbers; found {workers!r}, {servers!r} and {threads!r}"
        )
    if threads > 1:
        _check_threads_after_fork()
    # Every optimizer imports it when it is made: 1.2 s, here once and not in each worker.
    importlib.import_module("torch._dynamo")
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
    """Call function(worker) in forked ranks, on cores and nodes that the caller has.

    Args:
        workers, servers, threads, how: as in launch.run_ranks(), which says what it raises.

    Returns:
        What the function returned on each worker of this node, in their order.
    """
    values = launch.run_ranks(partial(_call, function), workers, servers, threads, **how)
    return [pickle.loads(value) for value in values if value is not None]


def _is_seconds(value: Any) -> bool:
    """Whether a value is a number above 0, which NaN is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _check_threads_after_fork() -> None:
    """Some OpenMP libraries (GNU's) wait forever in a process that was forked from one in which
    they have used threads."""
    probe = get_context("fork").Process(target=_use_threads)
    probe.start()
    probe.join(PROBE)
    if probe.exitcode is None:
        probe.kill()
        raise ValueError(
            "torch has computed with threads in this process, and those forked from it can have "
            "one thread only: call run() before, in a fresh process, or with threads=1"
        )


def _use_threads() -> None:
    torch.set_num_threads(2)
    torch.zeros(1 << 20).add_(1)
    os._exit(0)


def _call(function: Callable[[Worker], Any], world: World) -> bytes | None:
    worker = Worker(world)
    try:
        value = function(worker)
    except _ServedError:
        return None
    if world.is_server:
        raise ValueError("expected that the function calls share(), which a server serves")
    worker.close()
    # By value: a tensor that is sent as one lies in memory of a process that ends.
    return pickled(value)


class Worker:
    """This process among those of a run().

    torch.distributed's default group is there, too: gloo, of all processes.

    Attributes:
        rank: its number, from 0.
        workers: how many there are.
        world: the World, which a strategy sees; no promise is made for it.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._shared: list[SharedModel] = []
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
        """Have all workers train one model; called by every worker, with equal models.

        Args:
            model: a Module; its weights become those of rank 0.
            make_optimizer: function of a list of parameters that returns one of torch's optimizers,
                with one group. Where a strategy updates all weights as one vector, it gets parts
                of that: right for optimizers that treat every weight by itself.
            strategy: the name of one, or a class with the contract of strategies/base.py.
            clip_norm: gradients of a larger Euclidean norm are scaled down to it.
            resume: file that SharedModel.save() wrote, with any number of workers; or what
                SharedModel.state() returned.
            options: of the strategy.

        Raises:
            ValueError: there is no such strategy or option, or it cannot train this model.
        """
        cls = named.chosen(strategy, options, self.world)
        if self._shared and self.world.servers:
            raise ValueError("expected one share() in a run with servers, which serve one model")
        mine, of_shared = set(model.parameters()), [one.strategy.module for one in self._shared]
        if mine & {parameter for module in of_shared for parameter in module.parameters()}:
            raise ValueError("expected another model: parameters of this one are shared")
        _refuse_unusual_memory(model)
        sparse = [name for name, part in model.named_modules() if getattr(part, "sparse", False)]
        if sparse and self.workers > 1:
            found = f"{sparse[0] or type(model).__name__} with sparse=True"
            raise ValueError(f"strategies exchange dense gradients; found {found}")
        if self.world.size > 1:
            _take_first(model)
        made = cls.create(model, OptimizerMaker(make_optimizer, clip_norm), self.world, **options)
        _check_optimizer(made)
        saved = restored(made, resume, self.world.servers) if resume else {}
        if self.world.is_server:
            made.serve()
            raise _ServedError
        self._shared.append(SharedModel(made, self.world, saved))
        return self._shared[-1]

    def batches(
        self,
        data: Any,
        batch_size: int | None = None,
        *,
        epoch: int = 0,
        seed: int = 0,
        shuffle: bool = True,
    ) -> Iterator[tuple[Any, float]]:
        """Go through data once, with the other workers; yields (batch, weight).

        The batches are the same for any number of workers; each gets its part of every one.
        `weight` times the mean loss of the part, averaged over the workers, is the mean loss of the
        batch; it is 1 unless the batch does not divide evenly, and 0 where a worker would have had
        no sample and got another one's.

        Args:
            data: a tensor or array, or a tuple of some of one length; a Dataset; or a DataLoader,
                whose sampler and batch size count. Of an IterableDataset each worker reads all, and
                keeps its part.
            batch_size: samples of all workers together.
            epoch, seed: from which the order is drawn, of tensors, arrays and Datasets.

        Raises:
            ValueError: the batch size is missing, or given twice.
        """
        clock = self.world.clock
        clock.enter("data")
        for batch in parts(data, batch_size, epoch, seed, shuffle, self):
            clock.enter("compute")
            yield batch
            clock.enter("data")

    def sum(self, number: float) -> float:
        """The sum of a number over the workers."""
        total = torch.tensor([0.0 if self.world.is_server else number], dtype=torch.float64)
        with self._waiting("sum"):
            dist.all_reduce(total, group=self._group)
        return float(total)

    def mean(self, number: float) -> float:
        """The mean of a number over the workers."""
        return self.sum(number) / self.workers

    def broadcast(self, value: Any) -> Any:
        """The `value` of rank 0, on every worker."""
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
        """Context in which this worker waits for others: if one hangs, another one is to blame.

        Args:
            phase: one of supervision.TOGETHER.
        """
        self.world.clock.enter(phase)
        yield
        self.world.clock.enter("compute")

    @property
    def _group(self) -> Any:
        """The process group of the workers, and until they share a model of the servers, too, which
        go through the same lines until then."""
        return self.world.worker_group if self._shared else dist.group.WORLD

    def close(self) -> None:
        """End the servers once no worker needs them; run() calls it."""
        with self._waiting("end"):
            dist.barrier(self._group)
        for shared in self._shared:
            shared.strategy.close()


def _check_optimizer(strategy: Strategy) -> None:
    name = type(strategy.optimizer).__name__
    if len(strategy.optimizer.param_groups) != 1:
        raise ValueError("expected an optimizer with one group of parameters")
    if name in named.UNUSABLE_OPTIMIZERS:
        raise ValueError(f"{name} needs more than gradients: a closure, or one kind of weights")
    if strategy.flat and name in named.WHOLE_TENSOR_OPTIMIZERS:
        raise ValueError(f"{name} looks at whole tensors; this strategy updates all as one vector")


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
            found = "expanded: several of its elements lie in one place"
        if found:
            raise ValueError(f"{name} is {found}; expected a plain tensor, such as clone() gives")


def _take_first(model: nn.Module) -> None:
    """Give a model the weights and buffers that it has on rank 0."""
    tensors = [*model.parameters(), *model.buffers()]
    found = [f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in tensors]
    box = [found]
    dist.broadcast_object_list(box, src=0)
    if found != box[0]:
        raise ValueError(f"expected one model; rank 0 has {box[0]}, this one {found}"[:1000])
    with torch.no_grad():
        for tensor in tensors:
            whole = tensor.contiguous()  # the strides of a tensor need not be those of all
            # As bytes, since gloo does not know every dtype.
            dist.broadcast(whole.view(-1).view(torch.uint8), src=0)
            tensor.copy_(whole)
