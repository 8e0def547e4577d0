"""A small U-Net, which gives a score for each class and pixel.

Ronneberger, Fischer, Brox: U-Net: Convolutional Networks for Biomedical Image Segmentation. MICCAI
2015. Group norm replaces batch norm, so that a pixel's score depends on its image alone.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

ALLOWED = {"width": 0.01, "depth": [1, 6]}
GROUPS = 4  # of the norms


def _block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []  # without biases, which the norms would cancel
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(GROUPS, outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class _UNet(nn.Module):
    def __init__(self, channels: int, classes: int, width: float, depth: int) -> None:
        super().__init__()
        first = GROUPS * max(1, round(width * 16 / GROUPS))
        widths = [first * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            _block(inputs, outputs)
            for inputs, outputs in zip([channels, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(_block(2 * below + below, below) for below in reversed(widths[:-1]))
        self.head = nn.Conv2d(first, classes, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        levels: list[torch.Tensor] = []
        for block in self.down:
            images = block(F.max_pool2d(images, 2, ceil_mode=True) if levels else images)
            levels.append(images)
        for block, level in zip(self.up, reversed(levels[:-1]), strict=True):
            images = F.interpolate(images, level.shape[2:])
            images = block(torch.cat([images, level], dim=1))
        return self.head(images)


def unet(channels: int, classes: int, width: float = 1.0, depth: int = 2) -> nn.Module:
    """A U-Net that halves the image `depth` times.

    Args:
        width: multiplies the channels: 16 at the size of the image, twice as many on each level
            below.
    """
    return _UNet(channels, classes, width, depth)
