"""A small convolutional network for signals (C, L), images or volumes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

ALLOWED = {"width": 0.01, "kernel": 1}


def convnet(
    channels: int,
    shape: tuple[int, ...],
    classes: int,
    hidden: Sequence[int] = (16, 32, 64),
    kernel: int = 5,
    width: float = 1.0,
) -> nn.Sequential:
    """Convolutions with ReLU, each of which halves the size, then an average over all positions.

    Args:
        hidden: channels of the convolutions.
        kernel: size of the convolutions, odd.
        width: multiplies the channels.
    """
    convolution, average = {
        2: (nn.Conv1d, nn.AdaptiveAvgPool1d),
        3: (nn.Conv2d, nn.AdaptiveAvgPool2d),
        4: (nn.Conv3d, nn.AdaptiveAvgPool3d),
    }[len(shape)]
    units = [channels, *(max(1, round(width * n)) for n in hidden)]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(units):
        layers += [convolution(inputs, outputs, kernel, stride=2, padding=kernel // 2), nn.ReLU()]
    return nn.Sequential(*layers, average(1), nn.Flatten(), nn.Linear(units[-1], classes))
