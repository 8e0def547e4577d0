"""The samples of each worker at each step, scaled and augmented.

Batch t of an epoch is a slice of one permutation of the training samples, drawn from (seed, epoch).
Worker r takes every W-th sample of it. Augmentation draws from (seed, epoch, sample). So neither
the number of workers nor a resume changes what is trained on, and no random state has to be saved.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.random  # else numpy would import it at its first use, in each rank
import torch

from allcores_study.tasks.base import WITHOUT_CLASS

if TYPE_CHECKING:
    from allcores.loop.sharding import Shard

# Second words of the seeds, so that no two streams are the same.
AUGMENTATION, DROPOUT = 2, 3  # 1: allcores.loop.sharding.ORDER
# How much is gathered at a time: bytes of inputs that stay in a core's cache until they are used.
CHUNK_BYTES = 1 << 18


def loaded(
    shards: Iterable[Shard], source: Batches, targets: Any
) -> Iterator[tuple[Shard, torch.Tensor, torch.Tensor]]:
    """Yield (shard, its augmented inputs, its targets) for each Shard.

    Small shards are gathered several at a time, because the calls would cost more than the work.

    Args:
        targets: from targets.of().
    """
    shards = iter(shards)
    for first in shards:
        group = [first, *islice(shards, CHUNK_BYTES // source.bytes_of(first.samples))]
        sizes = [len(shard.samples) for shard in group]
        samples = np.concatenate([shard.samples for shard in group])
        inputs = source.augmented(samples)
        # Copies, so that each part begins at a cache line: results depend on the alignment.
        parts: Any = torch.split_with_sizes_copy(inputs, sizes) if len(group) > 1 else [inputs]  # type: ignore[func-returns-value]
        yield from zip(group, parts, targets.augmented(samples).split(sizes), strict=True)


def dropout_seed(seed: int, epoch: int, rank: int) -> int:
    """Return the seed of torch's generators for one epoch on one rank."""
    return int(np.random.SeedSequence([seed, DROPOUT, epoch, rank]).generate_state(1)[0])


def seed_dropout(seed: int, epoch: int, rank: int) -> None:
    """Seed the random number generators for one epoch on one rank."""
    seed_all(dropout_seed(seed, epoch, rank))


def seed_all(seed: int) -> None:
    """Seed the generators that a network may draw from: torch's, numpy's and Python's."""
    # Without a device, torch.manual_seed() keeps a traceback for each kind that may appear later.
    has_device = torch.accelerator.is_available()
    (torch.manual_seed if has_device else torch.default_generator.manual_seed)(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def random_state() -> tuple[Any, ...]:
    """Return the states of the generators that seed_all() seeds, without arrays of numpy."""
    name, numbers, *rest = np.random.get_state(legacy=True)
    return torch.get_rng_state(), (name, list(map(int, numbers)), *rest), random.getstate()


def restore_random_state(state: tuple[Any, ...]) -> None:
    of_torch, of_numpy, of_python = state
    torch.set_rng_state(of_torch)
    np.random.set_state(of_numpy)
    random.setstate(of_python)


class Batches:
    """Scaled float batches of samples, augmented for training.

    Args:
        inputs: (N, C, ...) uint8, float32 or, for a table, float64, usually memory-mapped; or
            tokens, (N, L) int32, which become int64 and are not scaled.
        mean, std: per channel, (C,) each; of uint8 inputs, scaled to 0..1. Where std is 0, inputs
            become 0.
        crop: pad by this many zero pixels, 0..127, and cut out a random window of the image's size.
        flip: mirror each image with probability 1/2.
        augment: from augmentation.of_run().
    """

    def __init__(
        self,
        inputs: np.ndarray,
        mean: np.ndarray,
        std: np.ndarray,
        crop: int = 0,
        flip: bool = False,
        augment: Callable[[torch.Tensor, int, int, np.ndarray], torch.Tensor] | None = None,
    ) -> None:
        self.inputs = inputs
        self.may_be_missing = inputs.dtype != np.uint8
        self.are_tokens = inputs.dtype.kind == "i"
        unit = 1 if self.may_be_missing else 255
        scale = np.divide(1, unit * std, out=np.zeros(len(std)), where=std > 0)
        per_channel = (-1, *[1] * (inputs.ndim - 2))
        # Differences between large numbers, such as seconds since 1970, are lost in float32.
        dtype = torch.float64 if inputs.dtype == np.float64 else torch.float32
        self.mean = torch.tensor(unit * mean, dtype=dtype).view(per_channel)
        self.scale = torch.tensor(scale, dtype=dtype).view(per_channel)
        self.crop, self.flip, self.augment = crop, flip, augment

    def start_epoch(self, seed: int, epoch: int) -> None:
        """Draw crops and flips for every sample of the dataset."""
        self.epoch = seed, epoch
        if not (self.crop or self.flip):
            return
        drawn = np.random.default_rng([seed, AUGMENTATION, epoch])
        if self.crop:
            size = 2, len(self.inputs)
            self.corners = drawn.integers(0, 2 * self.crop + 1, size=size, dtype=np.uint8)
        if self.flip:
            self.flips = drawn.random(len(self.inputs), dtype=np.float32) < 0.5

    def bytes_of(self, samples: np.ndarray) -> int:
        """Return the size of the samples' float32 inputs in bytes."""
        return 4 * math.prod(self.inputs.shape[1:]) * len(samples)

    def plain(self, samples: np.ndarray) -> torch.Tensor:
        """Return the inputs of samples as they are: (n,) int64 to (n, C, ...) float32."""
        return self.scaled(torch.from_numpy(self.inputs[samples]))

    def augmented(self, samples: np.ndarray) -> torch.Tensor:
        """Return the inputs of samples, cropped, flipped and augmented as drawn for this epoch."""
        inputs = self.moved(samples)
        return self.augment(inputs, *self.epoch, samples) if self.augment else inputs

    def moved(self, samples: np.ndarray) -> torch.Tensor:
        """Return the inputs of samples, only cropped and flipped."""
        return self.scaled(torch.from_numpy(self._moved(self.inputs[samples], samples)))

    def moved_masks(self, masks: np.ndarray, samples: np.ndarray) -> np.ndarray:
        """Return the masks of samples, cropped and flipped as their images are.

        (N, H, W) uint8 become (n, H, W). Pixels outside the image have no class.
        """
        return self._moved(masks[samples][:, None], samples, WITHOUT_CLASS)[:, 0]

    def _moved(self, pixels: np.ndarray, samples: np.ndarray, outside: int = 0) -> np.ndarray:
        if self.crop:
            pixels = _crop(pixels, self.crop, *self.corners[:, samples], outside)  # type: ignore[call-arg]
        if self.flip:
            mirrored = self.flips[samples]
            pixels[mirrored] = pixels[mirrored, :, :, ::-1]
        return pixels

    def scaled(self, values: torch.Tensor) -> torch.Tensor:
        """Return stored inputs as a model takes them."""
        if self.are_tokens:
            return values.to(torch.int64)
        # A copy, because torch's memory begins at a cache line and numpy's may not.
        inputs = values.to(self.mean.dtype, copy=True)
        scaled = inputs.sub_(self.mean).mul_(self.scale).float()
        # A missing value becomes the mean of the training samples.
        return scaled.nan_to_num_(nan=0.0) if self.may_be_missing else scaled


def _crop(
    pixels: np.ndarray, margin: int, top: np.ndarray, left: np.ndarray, outside: int
) -> np.ndarray:
    """Cut a window from each padded image.

    Args:
        pixels: (n, C, H, W) uint8.
        top, left: corner of each window in the padded image, (n,) integers in 0..2 * margin.
        outside: value of the pixels put around an image.
    """
    height, width = pixels.shape[2:]
    around = (margin, margin)
    padded = np.pad(pixels, ((0, 0), (0, 0), around, around), constant_values=outside)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    return windows[np.arange(len(pixels)), :, top, left]
