"""Images of any number and size that can be told apart, without a download.

Each class is a smooth random pattern. An image is its class's pattern, shifted by up to an eighth
of its size and mixed with noise: easy at noise 0.5, hard at 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allcores_study.data.storage import Samples
from allcores_study.tasks import base as tasks

if TYPE_CHECKING:
    from pathlib import Path

CHUNK, PIXELS = 1000, 1000 * 32**2  # images made at a time, and pixels of them, at most
ALLOWED = {"count": 1, "classes": 2, "channels": 1, "size": 1, "test": 0, "seed": 0, "noise": 0.0}


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
    total, step = count + test, max(1, min(CHUNK, PIXELS // size**2))
    random = np.random.default_rng(seed)
    low = min(4, size)
    shape = (classes, channels, low, low)
    spectra = random.normal(size=shape) + 1j * random.normal(size=shape)
    spectra[:, :, 0, 0] = 0
    labels = np.concatenate([random.permutation(part) % classes for part in (count, test)])
    return Samples(
        shape=(total, channels, size, size),
        chunks=(
            _images(random, _patterns(spectra[labels[start : start + step]], size), noise)
            for start in range(0, total, step)
        ),
        targets=labels,
        train=count,
        task=tasks.named("classification", classes),
        names=list(range(classes)),
    )


def _patterns(spectra: np.ndarray, size: int) -> np.ndarray:
    """Return smooth patterns, (n, channels, size, size) float64, of mean 0 and spread 1.

    Args:
        spectra: their lowest frequencies, (n, channels, low, low) complex128.
    """
    count, channels, low, _ = spectra.shape
    spectrum = np.zeros((count, channels, size, size), complex)
    spectrum[:, :, :low, :low] = spectra
    patterns = np.fft.ifft2(spectrum).real
    spread = patterns.std(axis=(2, 3), keepdims=True)
    return patterns / np.where(spread > 0, spread, 1)


def _images(random: np.random.Generator, images: np.ndarray, noise: float) -> np.ndarray:
    """Return patterns, (n, channels, size, size), shifted and with noise, as uint8."""
    reach = images.shape[-1] // 8
    shifts = random.integers(-reach, reach + 1, (len(images), 2))
    for image, (down, right) in zip(images, shifts, strict=True):
        image[:] = np.roll(image, (down, right), axis=(1, 2))
    images += noise * random.normal(size=images.shape)
    # Three standard deviations to either side fill the range of a byte.
    return np.clip(127.5 + images * (127.5 / (3 * np.hypot(1, noise))), 0, 255).astype(np.uint8)
