"""torchvision's VGG with batch norm (Simonyan & Zisserman 2015), with the head usual for CIFAR."""

from __future__ import annotations

from torch import nn

from allcores.machine.any_torchvision import import_torchvision

vgg = import_torchvision("models.vgg")

ALLOWED = {"width": 0.01}


def vgg11(
    channels: int, image_size: tuple[int, int], classes: int, width: float = 1.0
) -> nn.Sequential:
    """8 convolutions, 9.2 million weights; width multiplies the numbers of channels."""
    return _vgg("A", channels, classes, width)


def vgg13(
    channels: int, image_size: tuple[int, int], classes: int, width: float = 1.0
) -> nn.Sequential:
    """10 convolutions, 9.4 million weights; width multiplies the numbers of channels."""
    return _vgg("B", channels, classes, width)


def vgg16(
    channels: int, image_size: tuple[int, int], classes: int, width: float = 1.0
) -> nn.Sequential:
    """13 convolutions, 14.7 million weights; width multiplies the numbers of channels."""
    return _vgg("D", channels, classes, width)


def vgg19(
    channels: int, image_size: tuple[int, int], classes: int, width: float = 1.0
) -> nn.Sequential:
    """16 convolutions, 20.0 million weights; width multiplies the numbers of channels."""
    return _vgg("E", channels, classes, width)


def _vgg(letter: str, channels: int, classes: int, width: float) -> nn.Sequential:
    plan = [step if step == "M" else max(8, round(width * step)) for step in vgg.cfgs[letter]]
    features = vgg.make_layers(plan, batch_norm=True)
    features[0] = nn.Conv2d(channels, plan[0], kernel_size=3, padding=1)
    for layer in features:
        if isinstance(layer, nn.MaxPool2d):
            layer.ceil_mode = True  # so that five of them leave a pixel of any image
    return nn.Sequential(
        features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(plan[-2], classes)
    )
