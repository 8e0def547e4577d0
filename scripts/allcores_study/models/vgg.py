"""torchvision's VGG with batch norm (Simonyan & Zisserman 2015), with the head usual for CIFAR."""

from torch import nn

from allcores.machine.lean_torch import import_torchvision

vgg = import_torchvision("models.vgg")

ALLOWED = {"width": 0.01}


def vgg11(channels, image_size, classes, width=1.0):
    """8 convolutions, 9.2 million weights; width multiplies the numbers of channels."""
    return _vgg("A", channels, classes, width)


def vgg13(channels, image_size, classes, width=1.0):
    """10 convolutions, 9.4 million weights; width multiplies the numbers of channels."""
    return _vgg("B", channels, classes, width)


def vgg16(channels, image_size, classes, width=1.0):
    """13 convolutions, 14.7 million weights; width multiplies the numbers of channels."""
    return _vgg("D", channels, classes, width)


def vgg19(channels, image_size, classes, width=1.0):
    """16 convolutions, 20.0 million weights; width multiplies the numbers of channels."""
    return _vgg("E", channels, classes, width)


def _vgg(letter, channels, classes, width):
    plan = [step if step == "M" else max(8, round(width * step)) for step in vgg.cfgs[letter]]
    features = vgg.make_layers(plan, batch_norm=True)
    features[0] = nn.Conv2d(channels, plan[0], kernel_size=3, padding=1)
    for layer in features:
        if isinstance(layer, nn.MaxPool2d):
            layer.ceil_mode = True  # five halvings leave something of any image
    return nn.Sequential(
        features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(plan[-2], classes)
    )
