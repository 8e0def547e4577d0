"""LeNet-5 (LeCun et al. 1998) with ReLU and max pooling, as it is taught today.

The ReLU comes after the pool: the numbers are the same, for a quarter of the work.
"""

from __future__ import annotations

from torch import nn

MEMORY_FORMAT = "channels_last"  # a step takes less time, see docs/cores.md
ALLOWED = {"width": 0.01}


def lenet(
    channels: int, image_size: tuple[int, int], classes: int, width: float = 1.0
) -> nn.Sequential:
    """62,006 weights for 3 x 32 x 32 images and 10 classes.

    Args:
        image_size: (height, width) in pixels, as for all models.
        width: multiplies the numbers of channels and hidden units.
    """
    c1, c2, h1, h2 = (max(1, round(width * n)) for n in (6, 16, 120, 84))
    # Images below 16 pixels would shrink to nothing; images of 32 pixels become 5 x 5.
    small = min(image_size) < 16
    padding = 2 if small else 0
    fit = nn.Identity() if image_size == (32, 32) else nn.AdaptiveAvgPool2d(5)
    return nn.Sequential(
        nn.Conv2d(channels, c1, kernel_size=5, padding=padding),
        nn.MaxPool2d(2, ceil_mode=small),
        nn.ReLU(),
        nn.Conv2d(c1, c2, kernel_size=5, padding=padding),
        nn.MaxPool2d(2, ceil_mode=small),
        nn.ReLU(),
        fit,
        nn.Flatten(),
        nn.Linear(c2 * 25, h1),
        nn.ReLU(),
        nn.Linear(h1, h2),
        nn.ReLU(),
        nn.Linear(h2, classes),
    )
