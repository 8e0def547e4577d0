"""The user's own augmentation: a function of a batch and a random generator.

The random numbers for a sample depend on (seed, epoch, sample) alone, so they stay the same with
any number of workers and after a resume.
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

    It has the methods of numpy.random.Generator. Each returns a tensor with one row per sample:
    `generator.normal(0, 1, size=8)` has the shape (n, 8). Each sample has its own Philox stream,
    selected by the counter (Salmon et al.: Parallel random numbers: as easy as 1, 2, 3. SC 2011).

    Args:
        key: (2,) uint64, derived from seed and epoch.
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
    """Return the function that augments a batch; None: the Run has no augmentation of the user's.

    It takes inputs (n, ...) float32, seed, epoch and samples (n,) int64, and returns the augmented
    inputs.
    """
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
    """Return the inputs as the user's function augments them.

    Raises:
        ValueError: it does not return a tensor of the shape and dtype of the inputs.
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
        "expected a tensor of the same shape and dtype"
    )
