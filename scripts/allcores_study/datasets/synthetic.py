"""A learnable dataset of any size and shape: meaningful accuracy without a download.

Each class is a smooth random pattern. An image is its class's pattern, shifted by up to an eighth
of its size and mixed with noise: easy at noise 0.5, hard at 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allcores_study.data.metadata import Metadata
from allcores_study.data.storage import Samples

if TYPE_CHECKING:
    from pathlib import Path

CHUNK = 1000  # images made at a time
ALLOWED = {"count": 1, "classes": 2, "channels": 1, "size": 1, "test": 0, "seed": 0, "noise": 0.0}


def metadata(
    count: int = 10000,
    classes: int = 10,
    channels: int = 3,
    size: int = 32,
    test: int = 2000,
    noise: float = 1.0,
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
    count: int = 10000,
    classes: int = 10,
    channels: int = 3,
    size: int = 32,
    test: int = 2000,
    noise: float = 1.0,
    seed: int = 0,
) -> Samples:
    """`count` training images and `test` test images of size x size pixels.

    Args:
        noise: standard deviation of the noise, relative to the patterns.
    """
    total = count + test
    random = np.random.default_rng(seed)
    patterns = _patterns(random, classes, channels, size)
    labels = np.concatenate([random.permutation(part) % classes for part in (count, test)])
    return Samples(
        shape=(total, channels, size, size),
        chunks=(
            _images(random, patterns, labels[start : start + CHUNK], noise)
            for start in range(0, total, CHUNK)
        ),
        targets=labels,
        classes=list(range(classes)),
        train=count,
    )


def _patterns(random: np.random.Generator, classes: int, channels: int, size: int) -> np.ndarray:
    """Return smooth patterns, (classes, channels, size, size) float64, of mean 0 and spread 1."""
    spectrum = np.zeros((classes, channels, size, size), complex)
    low = min(4, size)
    shape = (classes, channels, low, low)
    spectrum[:, :, :low, :low] = random.normal(size=shape) + 1j * random.normal(size=shape)
    spectrum[:, :, 0, 0] = 0
    patterns = np.fft.ifft2(spectrum).real
    spread = patterns.std(axis=(2, 3), keepdims=True)
    return patterns / np.where(spread > 0, spread, 1)


def _images(
    random: np.random.Generator, patterns: np.ndarray, labels: np.ndarray, noise: float
) -> np.ndarray:
    size = patterns.shape[-1]
    reach = size // 8
    images = patterns[labels]
    for image, (down, right) in zip(
        images, random.integers(-reach, reach + 1, (len(labels), 2)), strict=True
    ):
        image[:] = np.roll(image, (down, right), axis=(1, 2))
    images += noise * random.normal(size=images.shape)
    # Three standard deviations to either side fill the range of a byte.
    return np.clip(127.5 + images * (127.5 / (3 * np.hypot(1, noise))), 0, 255).astype(np.uint8)
