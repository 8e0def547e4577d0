"""Scaling of inputs and targets, by the training samples alone, never by held-out ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from allcores_study.data.storage import Dataset

CHUNK = 1 << 24  # values per step


@dataclass(frozen=True)
class Scaling:
    """Mean and standard deviation of a run's training samples.

    Attributes:
        mean, std: of the inputs, per channel or feature, (C,) float64 each; pixels are in 0..1,
            other inputs in their own unit. A channel or feature with a std of 0 is left out.
        centre, spread: of the targets; their task scales them by these.
    """

    mean: np.ndarray
    std: np.ndarray
    centre: float | np.ndarray = 0.0
    spread: float | np.ndarray = 1.0

    @classmethod
    def of(cls, dataset: Dataset, samples: np.ndarray) -> Scaling:
        """Return the Scaling of a storage.Dataset.

        Args:
            samples: positions of the training samples, (n,) int64.
        """
        if dataset.pixel_sums is not None:
            statistics = channel_statistics(dataset.pixel_sums[samples], dataset.inputs.shape)
        elif dataset.vocabulary:
            statistics = np.zeros(1), np.ones(1)
        else:
            statistics = _statistics(dataset.inputs, samples)
            statistics = _keep_indicators(*statistics, dataset.columns)
        return cls(*statistics, *dataset.task.scaling(dataset.targets[samples]))

    def to_json(self) -> dict[str, Any]:
        return {key: np.asarray(value).tolist() for key, value in vars(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Scaling:
        mean, std = (np.array(values[name]) for name in ("mean", "std"))
        return cls(mean, std, *(np.array(values[name]) for name in ("centre", "spread")))


def _statistics(inputs: np.ndarray, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation over all axes except the second, ignoring NaN."""
    axes = tuple(axis for axis in range(inputs.ndim) if axis != 1)
    rows = max(1, CHUNK // max(1, int(np.prod(inputs.shape[1:]))))
    parts = [samples[start : start + rows] for start in range(0, len(samples), rows)]

    inner = tuple(range(len(axes)))
    least, most = np.full(inputs.shape[1], np.inf), np.full(inputs.shape[1], -np.inf)

    def mean_of(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        sums, counts = np.zeros(inputs.shape[1]), np.zeros(inputs.shape[1])
        for part in parts:
            values = function(np.moveaxis(inputs[part].astype(np.float64), 1, -1))
            sums += np.nansum(values, axis=inner)
            counts += np.sum(~np.isnan(values), axis=inner)
        return sums / np.maximum(counts, 1)

    def seen(values: np.ndarray) -> np.ndarray:
        np.fmin(least, np.fmin.reduce(values, axis=inner), out=least)
        np.fmax(most, np.fmax.reduce(values, axis=inner), out=most)
        return values

    mean = mean_of(seen)
    # In two passes: the difference of two large sums would lose a small spread.
    std = np.sqrt(mean_of(lambda values: (values - mean) ** 2))
    # A spread that comes from rounding counts as 0: in the sums, or in what was computed before.
    rounding = 1e-15 if inputs.dtype == np.float64 else 1e-7
    return mean, np.where((std > rounding * np.abs(mean)) & (least < most), std, 0.0)


def _keep_indicators(
    mean: np.ndarray, std: np.ndarray, columns: list[dict[str, Any]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return statistics that leave indicators of categories as 0 and 1."""
    is_indicator = np.array([column["category"] is not None for column in columns], bool)
    if not is_indicator.any():
        return mean, std
    return np.where(is_indicator, 0.0, mean), np.where(is_indicator, 1.0, std)


def channel_statistics(
    pixel_sums: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation per channel, of pixels in 0..1.

    Args:
        pixel_sums: (n, 2, C) int64, of the images to average over.
        shape: (N, C, H, W).

    Returns:
        (mean, std), (C,) float64 each.
    """
    pixels = len(pixel_sums) * shape[2] * shape[3]
    # Python's integers are exact, so that images of one colour have a spread of exactly zero.
    sums, squares = pixel_sums.sum(axis=0).astype(object)
    mean = (sums / pixels).astype(float) / 255
    std = np.sqrt(((pixels * squares - sums**2) / pixels**2).astype(float)) / 255
    return mean, std
