"""Staleness: how many updates came between the reading of weights and the update made from them."""

from __future__ import annotations

from typing import Any

import torch

# The last bin counts all larger values, too.
BINS = 256


class Staleness:
    """Counts updates by their staleness."""

    def __init__(self) -> None:
        self.counts = torch.zeros(BINS, dtype=torch.int64)

    def add(self, staleness: int) -> None:
        self.counts[min(staleness, BINS - 1)] += 1

    def take(self) -> Any:
        """How many updates there were of each staleness, (BINS,) int64, since the last call."""
        counts, self.counts = self.counts, torch.zeros_like(self.counts)
        return counts


def as_list(counts: Any) -> list[int]:
    """The counts without the empty bins at the end."""
    filled = counts.nonzero()
    return counts[: int(filled[-1]) + 1 if len(filled) else 0].tolist()
