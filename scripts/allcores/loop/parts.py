"""A worker's part of each batch, for any data that a training loop in torch goes through."""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from allcores.loop import sharding

if TYPE_CHECKING:
    from allcores.parallel.world import World


# Settings that the loader of a worker's parts takes over from the given DataLoader.
LOADER = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "prefetch_factor")
# Random number generators that a dataset may use: functions that get the state, set it and seed it.
GENERATORS: tuple[tuple[Any, Any, Any], ...] = (
    (torch.get_rng_state, torch.set_rng_state, torch.manual_seed),
    (np.random.get_state, np.random.set_state, np.random.seed),
    (random.getstate, random.setstate, random.seed),
)


def parts(
    data: Any, batch_size: Any, epoch: int, seed: int, shuffle: bool, world: Any
) -> Iterator[tuple[Any, float]]:
    """Yield (this worker's part of a batch, its weight); see worker.Worker.batches().

    Args:
        world: an object with rank, workers and broadcast(value).

    Raises:
        ValueError: the data or the batch size cannot be used.
    """
    _check(data, batch_size)
    if isinstance(data, DataLoader):
        loader = data
    elif isinstance(data, Dataset | list):
        samples: Any = data
        loader = DataLoader(samples, int(batch_size))
    else:
        yield from _of_arrays(data, batch_size, epoch, seed, shuffle, world)
        return
    if isinstance(loader.dataset, IterableDataset):
        yield from _of_stream(loader, world)
        return
    if loader is data:  # rank 0 draws the order for all
        drawn = world.broadcast([list(batch) for batch in loader.batch_sampler])
    else:
        order = _order(len(data), epoch, seed, shuffle).tolist()
        drawn = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    shares = [_share(batch, world) for batch in drawn if batch]
    same = {name: getattr(loader, name) for name in (*LOADER, "collate_fn")}
    of_mine = DataLoader(loader.dataset, batch_sampler=[mine for mine, _ in shares], **same)
    yield from zip(of_mine, (weight for _, weight in shares), strict=True)


def _of_arrays(
    data: Any, batch_size: int, epoch: int, seed: int, shuffle: bool, world: Any
) -> Iterator[tuple[Any, float]]:
    order = _order(_length(data), epoch, seed, shuffle)
    for shard in sharding.shards(order, batch_size, world.rank, world.workers):
        part = pytree.tree_map(lambda array, at=shard.samples: array[at], data)
        yield part, shard.weight


def _of_stream(loader: DataLoader, world: Any) -> Iterator[tuple[Any, float]]:
    """Yield the parts of a stream: each worker reads all samples and keeps its own."""
    same = {name: getattr(loader, name) for name in (*LOADER, "batch_size", "drop_last")}
    stream = DataLoader(loader.dataset, collate_fn=list, **same)
    for samples in _drawn_alike(stream, world):
        mine, weight = _share(samples, world)
        yield loader.collate_fn(mine), weight


def _drawn_alike(stream: DataLoader, world: World) -> Iterator[Any]:
    """Yield the batches of a stream, with the same random numbers on every worker.

    The stream has its own states of the generators, so it does not disturb the model's.
    """
    drawn = world.broadcast(int(torch.randint(1 << 31, ())))
    inside, iterator, ended = [drawn] * len(GENERATORS), None, object()
    while True:
        outside = [get() for get, _, _ in GENERATORS]
        for (_, put, seed), state in zip(GENERATORS, inside, strict=True):
            seed(state) if iterator is None else put(state)
        try:
            iterator = iter(stream) if iterator is None else iterator
            samples = next(iterator, ended)
            inside = [get() for get, _, _ in GENERATORS]
        finally:
            for (_, put, _), state in zip(GENERATORS, outside, strict=True):
                put(state)
        if samples is ended:
            return
        yield samples


def _order(length: int, epoch: int, seed: int, shuffle: bool) -> np.ndarray:
    order = np.arange(length)
    return sharding.shuffled(order, seed, epoch) if shuffle else order


def _share(batch: list[Any], world: Any) -> tuple[list[Any], float]:
    """Return (this worker's elements of a list, their weight)."""
    shard = sharding.shard(np.arange(len(batch)), world.rank, world.workers)
    return [batch[place] for place in shard.samples], shard.weight


def _length(data: Any) -> int:
    return len(pytree.tree_leaves(data)[0])


def _check(data: Any, batch_size: Any) -> None:
    if isinstance(data, DataLoader):
        if batch_size is not None or data.batch_size is data.batch_sampler is None:
            raise ValueError("expected no batch_size beside a DataLoader, and one that has batches")
        batches = data.batch_sampler
        samplers = (data.sampler, batches, getattr(batches, "sampler", None))
        if any(isinstance(sampler, DistributedSampler) for sampler in samplers):
            raise ValueError("expected no DistributedSampler: batches() divides the batches itself")
        return
    if not hasattr(batch_size, "__index__") or operator.index(batch_size) < 1:
        raise ValueError(f"expected a batch_size of 1 or more; found {batch_size}")
    if isinstance(data, Dataset | list):
        return
    arrays = pytree.tree_leaves(data)
    if not arrays or not all(hasattr(array, "shape") for array in arrays):
        raise ValueError(
            "expected a tensor or array, a tuple or dict of them, a Dataset, a list of samples or "
            f"a DataLoader; found {type(data).__name__}"
        )
    lengths = sorted({len(array) for array in arrays})
    if len(lengths) > 1:
        raise ValueError(f"expected arrays of one length; found {', '.join(map(str, lengths))}")
