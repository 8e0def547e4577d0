"""torchvision's MobileNet v2 (Sandler et al. 2018), with a stem for small images."""

from __future__ import annotations

from torch import nn

from allcores.machine.any_torchvision import import_torchvision

models = import_torchvision("models")

MEMORY_FORMAT = "channels_last"  # a step takes less time, see docs/cores.md
ALLOWED = {"width": 0.01, "dropout": [0.0, 1.0]}


def mobilenet_v2(
    channels: int,
    image_size: tuple[int, int],
    classes: int,
    width: float = 1.0,
    dropout: float = 0.2,
) -> nn.Module:
    """MobileNet v2 with the CIFAR stem: images below 64 pixels are halved three times, not five.

    Args:
        width: multiplies the numbers of channels, the paper's alpha.
        dropout: probability of dropout in the classifier.
    """
    model = models.MobileNetV2(num_classes=classes, width_mult=width, dropout=dropout)
    stem = model.features[0][0]
    small = min(image_size) < 64
    model.features[0][0] = nn.Conv2d(
        channels,
        stem.out_channels,
        kernel_size=3,
        stride=1 if small else 2,
        padding=1,
        bias=False,
    )
    if small:
        model.features[2].conv[1][0].stride = (1, 1)  # the first block that halves
    return model
