"""Random images with random labels, for timing only, of any size; ImageNet's by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allcores_study.data.metadata import Metadata
from allcores_study.data.storage import Samples

if TYPE_CHECKING:
    from pathlib import Path

CHUNK = 64  # images made at a time
ALLOWED = {"count": 1, "classes": 2, "channels": 1, "size": 1, "test": 0, "seed": 0}
LEARNABLE = False


def metadata(
    count: int = 1000,
    classes: int = 1000,
    channels: int = 3,
    size: int = 224,
    test: int = 0,
    seed: int = 0,
) -> Metadata:
    return Metadata(
        train=count,
        test=test,
        smallest_class=count // classes,
        shape=(channels, size, size),
        classes=classes,
    )


def load(
    folder: Path,
    *,
    count: int = 1000,
    classes: int = 1000,
    channels: int = 3,
    size: int = 224,
    test: int = 0,
    seed: int = 0,
) -> Samples:
    """`count` training images and `test` test images of size x size pixels."""
    total = count + test
    random = np.random.default_rng(seed)
    labels = np.concatenate([random.permutation(part) % classes for part in (count, test)])
    return Samples(
        shape=(total, channels, size, size),
        chunks=(
            random.integers(0, 256, (min(CHUNK, total - start), channels, size, size), np.uint8)
            for start in range(0, total, CHUNK)
        ),
        targets=labels,
        classes=list(range(classes)),
        train=count,
    )
