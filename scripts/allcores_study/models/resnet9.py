"""ResNet-9 (Page 2018, "How to Train Your ResNet", DAWNBench): few layers, so it trains fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    import torch

ALLOWED = {"width": 0.01, "scale": 0.0}


def resnet9(channels: int, classes: int, width: float = 1.0, scale: float = 0.125) -> nn.Sequential:
    """6.6 million weights for 3 x 32 x 32 images and 10 classes.

    Args:
        width: multiplies the numbers of channels.
        scale: multiplies the scores, so that the last layer also tolerates high learning rates.
    """
    c1, c2, c3, c4 = (max(1, round(width * n)) for n in (64, 128, 256, 512))
    return nn.Sequential(
        *_convolution(channels, c1),
        *_convolution(c1, c2),
        nn.MaxPool2d(2, ceil_mode=True),
        Residual(c2),
        *_convolution(c2, c3),
        nn.MaxPool2d(2, ceil_mode=True),
        *_convolution(c3, c4),
        nn.MaxPool2d(2, ceil_mode=True),
        Residual(c4),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(c4, classes, bias=False),
        Scale(scale),
    )


class Residual(nn.Module):
    """x plus two convolutions of it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            *_convolution(channels, channels), *_convolution(channels, channels)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.branch(x)


class Scale(nn.Module):
    """x times a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x


def _convolution(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )
