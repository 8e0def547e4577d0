"""MobileNet v1 (Howard et al. 2017): depthwise separable convolutions."""

from __future__ import annotations

from typing import Any

from torch import nn

MEMORY_FORMAT = "channels_last"  # a step takes less time, see docs/cores.md
ALLOWED = {"width": 0.01, "stem_stride": (None, 1, 2)}

# Output channels and stride of each separable block.
BLOCKS = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)


def mobilenet(
    channels: int,
    image_size: tuple[int, int],
    classes: int,
    width: float = 1.0,
    stem_stride: int | None = None,
) -> nn.Sequential:
    """MobileNet with the CIFAR stem: images below 64 pixels are not halved at once.

    Args:
        width: multiplies the numbers of channels, the paper's alpha.
        stem_stride: stride of the first convolution; None: 1 for images below 64 pixels, else 2, as
            in the paper. With 2, small images cost a quarter as much.
    """
    stem_stride = stem_stride or (1 if min(image_size) < 64 else 2)
    inputs = _scaled(32, width)
    layers = _convolution(channels, inputs, 3, stride=stem_stride)
    for outputs, stride in BLOCKS:
        outputs = _scaled(outputs, width)
        layers += _convolution(inputs, inputs, 3, stride=stride, groups=inputs)
        layers += _convolution(inputs, outputs, 1)
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def _scaled(channels: int, width: float) -> int:
    return max(8, round(width * channels))


def _convolution(inputs: int, outputs: int, kernel_size: int, **options: Any) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, kernel_size, padding=kernel_size // 2, bias=False, **options),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    ]
