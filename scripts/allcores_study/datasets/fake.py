"""Random images with random labels: only for timing, at any size; ImageNet's by default."""

import numpy as np

from allcores_study.data.metadata import Metadata
from allcores_study.data.storage import Samples

CHUNK = 64  # images made at a time
ALLOWED = {"count": 1, "classes": 2, "channels": 1, "size": 1, "test": 0, "seed": 0}
LEARNABLE = False


def metadata(count=1000, classes=1000, channels=3, size=224, test=0, seed=0):
    return Metadata(
        train=count,
        test=test,
        smallest_class=count // classes,
        shape=(channels, size, size),
        classes=classes,
    )


def load(folder, *, count=1000, classes=1000, channels=3, size=224, test=0, seed=0):
    """count training images and test test images of size x size pixels."""
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
