"""A small convolutional network."""

from torch import nn


class Net(nn.Sequential):
    """Two convolutions, then the mean over the image.

    Args:
        channels: number of channels of an image.
        classes: number of classes.
        width: channels of the first convolution.
    """

    def __init__(self, channels, classes, width=8):
        super().__init__(
            *(nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()),
            nn.MaxPool2d(2),
            *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            nn.Linear(2 * width, classes),
        )
