"""A multilayer perceptron: the shallow network on which CPUs do well, for samples of any shape."""

from itertools import pairwise
from math import prod

from torch import nn

ALLOWED = {"width": 0.01, "hidden": 1}


def mlp(shape, classes, hidden=(256, 256), width=1.0):
    """Fully connected layers with ReLU.

    Args:
        hidden: units of the hidden layers.
        width: multiplies them.
    """
    units = [prod(shape), *(max(1, round(width * n)) for n in hidden)]
    layers = [nn.Flatten()]
    for inputs, outputs in pairwise(units):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(units[-1], classes))
