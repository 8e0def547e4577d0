"""The targets that the loss compares scores with, plain and augmented."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np

    from allcores_study.data.batches import Batches
    from allcores_study.data.scaling import Scaling
    from allcores_study.data.storage import Dataset


class Fixed:
    """Targets that do not depend on what is done to the input.

    Args:
        values: of all samples, (N, ...), scaled.
        source: the inputs.
    """

    def __init__(self, values: np.ndarray, source: Batches) -> None:
        self.values = torch.from_numpy(values)

    def plain(self, samples: np.ndarray) -> torch.Tensor:
        """Return the targets of samples, (n,) int64, as they are scored."""
        return self.values[samples]

    def augmented(self, samples: np.ndarray) -> torch.Tensor:
        """Return the targets of samples as they are trained on in this epoch."""
        return self.plain(samples)


class Pixels:
    """Masks, cropped and flipped as their images are; arguments as in Fixed."""

    def __init__(self, values: np.ndarray, source: Batches) -> None:
        self.values, self.source = values, source

    def plain(self, samples: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(self.values[samples]).long()

    def augmented(self, samples: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(self.source.moved_masks(self.values, samples)).long()


KINDS: dict[str, type[Fixed | Pixels]] = {"fixed": Fixed, "pixels": Pixels}


def of(dataset: Dataset, scaling: Scaling, source: Batches) -> Fixed | Pixels:
    """Return the targets of a storage.Dataset.

    Args:
        scaling: that of the training samples.
        source: the inputs.
    """
    values = dataset.task.scaled(dataset.targets, scaling)
    return KINDS[dataset.task.target](values, source)
