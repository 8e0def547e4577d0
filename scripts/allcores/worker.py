"""The strategies in anybody's training loop: run() forks workers, each calls one function.

    import allcores, torch

    def adamw(parameters):
        return torch.optim.AdamW(parameters, lr=1e-3)

    def train(worker):
        model = Net()
        shared = worker.share(model, adamw, "shared_memory")
        for epoch in range(10):
            for (inputs, targets), weight in worker.batches(dataset, batch_size=256, epoch=epoch):
                loss = weight * criterion(shared.model(inputs), targets)
                loss.backward()
                shared.step()
            shared.synchronize()
        return loss.item()

    losses = allcores.run(train, workers=8)

It uses what the workflow trains with: parallel/launch.py, data/batches.py, strategies/. The
workflow's own loop, training/loop.py, does besides what needs a Run: resuming in the middle of an
epoch, early stopping, averages of weights, times per phase.
"""

import os
import pickle
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context

import numpy as np
import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset

from allcores.data import batches
from allcores.files import whole
from allcores.machine import cores, leases
from allcores.parallel import launch, nodes
from allcores.parallel.failures import RankFailedError
from allcores.strategies.base import Strategy
from allcores.study import registry
from allcores.training.optimizers import OptimizerMaker

__all__ = ["RankFailedError", "SharedModel", "Worker", "run"]

# As long as a collective of gloo's waits for others.
TIMEOUT = 1800.0
# Seconds for which a forked process may compute for a millisecond.
PROBE = 5.0
# Of a DataLoader, what its part on a worker has, too.
LOADER = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "prefetch_factor")


class _ServedError(Exception):
    """A server has done its work; the rest of the function is for workers."""


def run(
    function,
    *arguments,
    workers=None,
    servers=0,
    threads=1,
    pinning=True,
    timeout=TIMEOUT,
    count_nodes=1,
    node=0,
    rendezvous=None,
    interface=None,
    **options,
):
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
        interface: the network interface by which they do; None: any that connects them.

    Returns:
        What the function returned on each worker of this node, in their order; whatever can be
        pickled.

    Raises:
        ValueError: the number of workers, servers or nodes is impossible, or threads > 1 where
            torch has already used threads in this process.
        failures.RankFailedError: a process raised, was killed or hangs; the text names it, with its
            traceback. The others have been killed by then.
    """
    workers = workers or max(1, cores.allowed() // threads) * count_nodes
    if workers < 1 or servers < 0 or threads < 1 or workers % count_nodes:
        raise ValueError(
            f"expected workers >= 1 that {count_nodes} nodes share evenly, servers >= 0 and "
            f"threads >= 1; found {workers}, {servers} and {threads}"
        )
    if count_nodes > 1 and rendezvous is None:
        raise ValueError("expected rendezvous=FILE, on a file system that all nodes share")
    if threads > 1:
        _check_threads_after_fork()
    target = partial(_call, partial(function, **options), arguments)
    with nodes.meet(count_nodes, node, rendezvous, interface) as met:
        here = len(launch.ranks_of(met, workers, servers)) * threads
        with leases.leased(here) if pinning else nullcontext() as pins:
            values = launch.run_ranks(
                target, workers, servers, threads, pins=pins, timeout=timeout, nodes=met
            )
    return [pickle.loads(value) for value in values if value is not None]


def _check_threads_after_fork():
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


def _use_threads():
    torch.set_num_threads(2)
    torch.zeros(1 << 20).add_(1)
    os._exit(0)


def _call(function, arguments, world):
    worker = Worker(world)
    try:
        value = function(worker, *arguments)
    except _ServedError:
        return None
    worker.close()
    # By value: a tensor that is sent as one lies in memory of a process that ends.
    return pickle.dumps(value)


class Worker:
    """This process among those of a run().

    torch.distributed's default group is there, too: gloo, of all processes.

    Attributes:
        rank: its number, from 0.
        workers: how many there are.
    """

    def __init__(self, world):
        self._world, self._shared = world, []
        self.rank, self.workers = world.rank, world.workers

    def share(
        self,
        model,
        make_optimizer,
        strategy,
        *,
        clip_norm=None,
        resume=None,
        **options,
    ):
        """Have all workers train one model; called by every worker, with equal models.

        Args:
            model: a Module; its weights become those of rank 0.
            make_optimizer: function of a list of parameters that returns one of torch's optimizers,
                with one group. Where a strategy updates all weights as one vector, it gets parts
                of that: right for optimizers that treat every weight by itself.
            strategy: the name of one, or a class with the contract of strategies/base.py.
            clip_norm: gradients of a larger Euclidean norm are scaled down to it.
            resume: file that SharedModel.save() wrote, with any number of workers.
            options: of the strategy.

        Raises:
            ValueError: there is no such strategy or option, or it cannot train this model.
        """
        cls = _strategy(strategy, options, self._world)
        sparse = [name for name, part in model.named_modules() if getattr(part, "sparse", False)]
        if sparse and self.workers > 1:
            found = f"{sparse[0] or type(model).__name__} with sparse=True"
            raise ValueError(f"strategies exchange dense gradients; found {found}")
        _take_first(model)
        made = cls.create(model, OptimizerMaker(make_optimizer, clip_norm), self._world, **options)
        if len(made.optimizer.param_groups) != 1:
            raise ValueError("expected an optimizer with one group of parameters")
        saved = _restored(made, resume, self._world.servers) if resume else {}
        if self._world.is_server:
            made.serve()
            raise _ServedError
        self._shared.append(SharedModel(made, self._world, saved))
        return self._shared[-1]

    def batches(self, data, batch_size=None, *, epoch=0, seed=0, shuffle=True):
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
        clock = self._world.clock
        clock.enter("data")
        for batch in self._parts(data, batch_size, epoch, seed, shuffle):
            clock.enter("compute")
            yield batch
            clock.enter("data")

    def _parts(self, data, batch_size, epoch, seed, shuffle):
        is_loader = isinstance(data, DataLoader)
        _check(data, batch_size)
        loader = data if is_loader else DataLoader(data, batch_size) if _is_dataset(data) else None
        if loader is not None and isinstance(loader.dataset, IterableDataset):
            yield from (_part_of(batch, self.rank, self.workers) for batch in loader)
            return
        if is_loader:  # rank 0 draws the order for all
            whole = self._world.broadcast([list(batch) for batch in data.batch_sampler])
            mine = [batches.shard(np.array(batch), self.rank, self.workers) for batch in whole]
        else:
            length = len(_first(data) if loader is None else loader.dataset)
            order = np.arange(length)
            order = batches.shuffled(order, seed, epoch) if shuffle else order
            mine = list(batches.shards(order, batch_size, self.rank, self.workers))
        if loader is None:
            for part in mine:
                yield pytree.tree_map(lambda array, at=part.samples: array[at], data), part.weight
            return
        same = {name: getattr(loader, name) for name in LOADER}
        samples = [part.samples.tolist() for part in mine]
        part_of_loader = DataLoader(loader.dataset, batch_sampler=samples, **same)
        yield from zip(part_of_loader, (part.weight for part in mine), strict=True)

    def sum(self, number):
        """The sum of a number over the workers."""
        return self._world.sum(float(number))

    def mean(self, number):
        """The mean of a number over the workers."""
        return self.sum(number) / self.workers

    def broadcast(self, value):
        """The `value` of rank 0, on every worker."""
        return self._world.broadcast(value)

    def barrier(self):
        """Wait for all workers."""
        self._world.clock.enter("wait")
        self._world.barrier()

    def close(self):
        """End the servers; run() calls it."""
        for shared in self._shared:
            shared.strategy.close()


class SharedModel:
    """A model that all workers train.

    Attributes:
        model: what to call; strategies may wrap the module.
        optimizer: for torch's schedulers: step() takes its learning rate from there.
        strategy: the Strategy.
        saved: the further values that save() was given, of the state that this one resumed from.
    """

    def __init__(self, strategy, world, saved):
        (group,) = strategy.optimizer.param_groups
        self.model, self.optimizer, self.strategy = strategy.model, strategy.optimizer, strategy
        self.saved, self._world, self._lr = saved, world, group["lr"]

    def step(self):
        """Make the update of what backward() has left, and clear the gradients."""
        (group,) = self.optimizer.param_groups
        lr = group["lr"]
        self.strategy.step(lr)
        group["lr"] = lr  # some strategies update with a part of it
        self._world.clock.enter("compute")

    def accumulating(self):
        """Context of a forward() and backward() whose gradient the next step() outside applies,
        too."""
        return self.strategy.accumulating()

    def synchronize(self):
        """Make all workers' weights the final ones: at the end of each epoch, and before any use
        of the module besides training. Norm layers' statistics are averaged."""
        self._world.clock.enter("wait")
        self.strategy.synchronize()

    def save(self, file, **further):
        """Write the state, whole or not at all; called by every worker, after synchronize().

        Args:
            further: what else a resumed run needs, such as the number of the next epoch.
        """
        if self._world.rank == 0:
            state = {"strategy": self.strategy.state(), "servers": self._world.servers}
            with whole(file) as part:
                torch.save(state | {"further": further}, part)
        self._world.barrier()


def _strategy(strategy, options, world):
    """The class of a strategy, once its options are known to be right."""
    known = registry.strategies()
    if isinstance(strategy, type) and issubclass(strategy, Strategy):
        return strategy
    if strategy not in known:
        raise ValueError(f"expected a strategy of {', '.join(known)}; found {strategy!r}")
    component = known[strategy]
    unknown = options.keys() - component.options.keys()
    if unknown:
        allowed = ", ".join(component.options) or "none"
        raise ValueError(f"options of {strategy}: {allowed}; found {', '.join(sorted(unknown))}")
    has_servers = "servers" in component.options
    if has_servers != bool(world.servers):
        expected = "run(..., servers=1) or more" if has_servers else "no servers"
        raise ValueError(f"{strategy} expects {expected}; found {world.servers}")
    if has_servers:
        options["servers"] = world.servers
    if component.constants.get("one_worker") and world.workers > 1:
        raise ValueError(f"{strategy} uses one worker; found {world.workers}")
    if component.constants.get("one_node") and world.nodes > 1:
        raise ValueError(f"{strategy} uses one machine; found {world.nodes}")
    return component.load()


def _take_first(model):
    """Give a model the weights and buffers that it has on rank 0."""
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            box = tensor.contiguous()  # the strides of a tensor need not be those of all
            dist.broadcast(box, src=0)
            tensor.copy_(box)


def _restored(strategy, file, servers):
    """Restore the state in a file; returns the further values in it."""
    saved = torch.load(file, map_location="cpu", weights_only=True)
    if saved["servers"] != servers:
        raise ValueError(f"{file} is of a run with {saved['servers']} servers; found {servers}")
    strategy.restore(saved["strategy"])
    return saved["further"]


def _check(data, batch_size):
    """Raise a ValueError unless batches() can go through data."""
    is_loader = isinstance(data, DataLoader)
    if is_loader and (batch_size is not None or data.batch_size is data.batch_sampler is None):
        raise ValueError("expected no batch_size, and a DataLoader that makes batches")
    if not is_loader and not (isinstance(batch_size, int) and batch_size > 0):
        raise ValueError(f"expected a batch_size of 1 or more; found {batch_size}")
    if not (is_loader or _is_dataset(data) or hasattr(_first(data), "shape")):
        raise ValueError(
            "expected a tensor, an array, some in a tuple or dict, a Dataset or a DataLoader; "
            f"found {type(data).__name__} of {type(_first(data)).__name__}"
        )


def _is_dataset(data):
    return isinstance(data, Dataset)


def _first(data):
    return pytree.tree_leaves(data)[0]


def _part_of(batch, rank, workers):
    """(this worker's samples of a batch, their weight)."""
    part = batches.shard(np.arange(len(_first(batch))), rank, workers)
    return pytree.tree_map(lambda values: values[part.samples], batch), part.weight
