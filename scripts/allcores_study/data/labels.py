"""Parts of the samples in which each label has its share."""

from __future__ import annotations

import numpy as np


def spread(labels: np.ndarray, shares: list[float], seed: int) -> np.ndarray:
    """Return the part of each sample: (N,) int64, seeded.

    Iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011, "On the Stratification of
    Multi-Label Data"): the samples of the rarest remaining label go to the parts that lack it most,
    and so on.

    Args:
        labels: (N, T) zeros and ones.
        shares: the share of each part; they add up to 1.
    """
    random = np.random.default_rng(seed)
    wanted = np.outer(shares, labels.sum(axis=0))  # how many of each label each part still lacks
    room = np.array(shares) * len(labels)
    part_of = np.full(len(labels), -1, np.int64)
    order = random.permutation(len(labels))
    while (left := labels[part_of < 0].sum(axis=0)).any():
        rarest = int(np.argmin(np.where(left > 0, left, len(labels) + 1)))
        for sample in order[(part_of[order] < 0) & (labels[order, rarest] > 0)]:
            _put(sample, wanted[:, rarest], part_of, room, random)
            wanted[part_of[sample]] -= labels[sample]
    for sample in order[part_of[order] < 0]:
        _put(sample, room, part_of, room, random)
    return part_of


def _put(
    sample: int,
    lack: np.ndarray,
    part_of: np.ndarray,
    room: np.ndarray,
    random: np.random.Generator,
) -> None:
    """Put a sample into the part that lacks most; ties go to the part with the most room."""
    best = np.flatnonzero(np.isclose(lack, lack.max()))
    best = best[np.isclose(room[best], room[best].max())]
    part_of[sample] = random.choice(best)
    room[part_of[sample]] -= 1
