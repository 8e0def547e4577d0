"""torchvision's ResNets (He et al. 2016), with a stem for small images."""

from __future__ import annotations

from torch import nn

from allcores.machine.any_torchvision import import_torchvision

models = import_torchvision("models")


def resnet18(channels: int, image_size: tuple[int, int], classes: int) -> nn.Module:
    """Basic blocks, 11.2 million weights for 10 classes."""
    return _fit(models.resnet18(num_classes=classes), channels, image_size)


def resnet50(channels: int, image_size: tuple[int, int], classes: int) -> nn.Module:
    """Bottleneck blocks, 23.5 million weights for 10 classes."""
    return _fit(models.resnet50(num_classes=classes), channels, image_size)


def _fit(model: nn.Module, channels: int, image_size: tuple[int, int]) -> nn.Module:
    if min(image_size) < 64:
        # The CIFAR stem: ImageNet's would shrink 32 x 32 pixels to 8 x 8 before the first block.
        model.conv1 = nn.Conv2d(channels, 64, kernel_size=3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    else:
        model.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
    return model
