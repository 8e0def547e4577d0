"""Staleness: how many updates came between reading weights and the update computed from them."""

from __future__ import annotations

from typing import Any

import torch

# The last bin also counts all larger values.
BINS = 256


class Staleness:
    """Numbers of updates by their staleness."""

    def __init__(self) -> None:
        self.counts = torch.zeros(BINS, dtype=torch.int64)

    def add(self, staleness: int) -> None:
        self.counts[min(staleness, BINS - 1)] += 1

    def take(self) -> Any:
        """Return how many updates of each staleness, (BINS,) int64, came since the last call."""
        counts, self.counts = self.counts, torch.zeros_like(self.counts)
        return counts


def as_list(counts: Any) -> list[int]:
    """Return the counts without the empty bins at the end."""
    filled = counts.nonzero()
    return counts[: int(filled[-1]) + 1 if len(filled) else 0].tolist()
