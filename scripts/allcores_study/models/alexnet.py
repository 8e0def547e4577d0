"""AlexNet (Krizhevsky 2014, "One weird trick"), with a stem and a head that suit small images."""

from __future__ import annotations

from typing import Any

from torch import nn

MEMORY_FORMAT = "channels_last"  # a step takes less time, see docs/cores.md
ALLOWED = {"width": 0.01, "dropout": [0.0, 1.0]}


def alexnet(
    channels: int,
    image_size: tuple[int, int],
    classes: int,
    width: float = 1.0,
    dropout: float = 0.5,
) -> nn.Sequential:
    """torchvision's AlexNet, with a stem that does not shrink images below 64 pixels.

    Args:
        width: multiplies the numbers of channels and hidden units.
        dropout: probability of dropout in the classifier.
    """
    c1, c2, c3, c4, c5 = (max(1, round(width * n)) for n in (64, 192, 384, 256, 256))
    hidden = max(1, round(width * 4096))
    large = min(image_size) >= 64
    side = 6 if large else 2
    stem: dict[str, Any] = (
        {"kernel_size": 11, "stride": 4, "padding": 2}
        if large
        else {"kernel_size": 3, "padding": 1}
    )
    pool: dict[str, Any] = {"kernel_size": 3, "stride": 2, "padding": 0 if large else 1}
    return nn.Sequential(
        nn.Conv2d(channels, c1, **stem),
        nn.ReLU(),
        nn.MaxPool2d(**pool),
        nn.Conv2d(c1, c2, kernel_size=5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(**pool),
        nn.Conv2d(c2, c3, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(c3, c4, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(c4, c5, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(**pool),
        nn.AdaptiveAvgPool2d(side),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(c5 * side**2, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
