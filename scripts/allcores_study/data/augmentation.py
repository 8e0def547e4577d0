"""Augmentation of the user's own: a function of a batch and a generator.

Its draws for a sample depend on (seed, epoch, sample) alone, so that neither the number of workers
nor a resume changes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from allcores_study.config import component
from allcores_study.data.batches import AUGMENTATION

if TYPE_CHECKING:
    from allcores_study.config.run import Run


class SampleGenerator:
    """Random numbers for the samples of a batch.

    It has the methods of numpy.random.Generator; each returns a tensor with a row per sample:
    `generator.normal(0, 1, size=8)` is (n, 8). Each sample has a stream of its own, of Philox
    (Salmon et al.: Parallel random numbers: as easy as 1, 2, 3. SC 2011), by its counter.

    Args:
        key: (2,) uint64, of seed and epoch.
        samples: positions in the dataset, (n,) int64.
    """

    def __init__(self, key: np.ndarray, samples: np.ndarray) -> None:
        self._streams = [
            np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, sample]))
            for sample in samples
        ]

    def __getattr__(self, name: str) -> Callable[..., torch.Tensor]:
        if name.startswith("_"):
            raise AttributeError(name)

        def draw(*args: Any, **options: Any) -> torch.Tensor:
            rows = [getattr(stream, name)(*args, **options) for stream in self._streams]
            values = torch.from_numpy(np.stack(rows))
            return values.float() if values.is_floating_point() else values

        return draw


def of_run(run: Run) -> Callable[[torch.Tensor, int, int, np.ndarray], torch.Tensor] | None:
    """A function of inputs (n, ...) float32, seed, epoch and samples (n,) int64 that returns the
    augmented inputs; None: the Run has no augmentation of the user's."""
    if run.augmentation is None:
        return None
    own = component.imported(run.augmentation.name, "augmentations").load()
    return partial(_augmented, partial(own, **run.augmentation.options))


def _augmented(
    own: Callable[[torch.Tensor, SampleGenerator], Any],
    inputs: torch.Tensor,
    seed: int,
    epoch: int,
    samples: np.ndarray,
) -> torch.Tensor:
    """What a user's function returns.

    Raises:
        ValueError: it is no tensor of the shape and dtype of the inputs.
    """
    key = np.random.SeedSequence([seed, AUGMENTATION, epoch]).generate_state(2, np.uint64)
    augmented = own(inputs, SampleGenerator(key, samples))
    if not torch.is_tensor(augmented):
        found = type(augmented).__name__
    elif augmented.shape == inputs.shape and augmented.dtype == inputs.dtype:
        return augmented
    else:
        found = f"{tuple(augmented.shape)}, {augmented.dtype}"
    raise ValueError(
        f"the augmentation returns {found} for a batch of {tuple(inputs.shape)}, {inputs.dtype}; "
        "expected a tensor of the same"
    )
