"""A small U-Net, which gives a score for each class and pixel.

Ronneberger, Fischer, Brox: U-Net: Convolutional Networks for Biomedical Image Segmentation. MICCAI
2015. Group norm stands in for batch norm, so that a pixel's score depends on its image alone.
"""

import torch
from torch import nn
from torch.nn import functional as F

ALLOWED = {"width": 0.01, "depth": [1, 6]}
GROUPS = 4  # of the norms


def _block(inputs, outputs):
    layers = []  # without biases, which the norms would take away
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(GROUPS, outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class _UNet(nn.Module):
    def __init__(self, channels, classes, width, depth):
        super().__init__()
        first = GROUPS * max(1, round(width * 16 / GROUPS))
        widths = [first * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            _block(inputs, outputs)
            for inputs, outputs in zip([channels, *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(_block(2 * below + below, below) for below in reversed(widths[:-1]))
        self.head = nn.Conv2d(first, classes, 1)

    def forward(self, images):
        levels = []
        for block in self.down:
            images = block(F.max_pool2d(images, 2, ceil_mode=True) if levels else images)
            levels.append(images)
        for block, level in zip(self.up, reversed(levels[:-1]), strict=True):
            images = F.interpolate(images, level.shape[2:])
            images = block(torch.cat([images, level], dim=1))
        return self.head(images)


def unet(channels, classes, width=1.0, depth=2):
    """A U-Net that halves the image `depth` times.

    Args:
        width: multiplies the channels, of which there are 16 at the size of the image, and twice as
            many on each level below.
    """
    return _UNet(channels, classes, width, depth)
