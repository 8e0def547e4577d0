"""Which samples each worker gets of each batch.

Batch t of an epoch is a slice of one permutation of the training samples, drawn from (seed, epoch);
worker r takes every W-th sample of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.random  # here, or numpy would import it in each rank at the first use

# Second word of the seed of the permutation.
ORDER = 1


class Shard(NamedTuple):
    """One worker's part of one global batch.

    Attributes:
        samples: positions in the dataset, (n,) int64.
        weight: workers * n / batch. The average over the workers of weight * mean loss is the mean
            loss of the global batch, however unevenly it is divided.
        batch: number of samples in the global batch.
    """

    samples: np.ndarray
    weight: float
    batch: int


def count_batches(samples: int, batch_size: int) -> int:
    """Return how many batches an epoch has; the last one may be short."""
    return -(-samples // batch_size)


def shuffled(indices: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Return `indices`, (n,) int64, in the order in which an epoch goes through them."""
    return np.random.default_rng([seed, ORDER, epoch]).permutation(indices)


def shards(
    order: np.ndarray, batch_size: int, rank: int, workers: int, done: int = 0
) -> Iterator[Shard]:
    """Yield this worker's Shard of every batch of an epoch except the first `done`.

    Args:
        order: samples of the epoch, (n,) int64. Over all workers each comes exactly once, except
            those that shard() repeats.
    """
    for start in range(done * batch_size, len(order), batch_size):
        yield shard(order[start : start + batch_size], rank, workers)


def shard(batch: np.ndarray, rank: int, workers: int) -> Shard:
    """Return this worker's Shard of a batch, (n,) int64, n > 0.

    A worker that would have no sample gets the first one, with weight 0: every rank has to take
    part in every step.
    """
    mine = batch[rank::workers]
    if len(mine):
        return Shard(mine, workers * len(mine) / len(batch), len(batch))
    return Shard(batch[:1], 0.0, len(batch))
