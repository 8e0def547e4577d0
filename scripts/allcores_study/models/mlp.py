"""A multilayer perceptron: the shallow network on which CPUs do well, for samples of any shape."""

from itertools import pairwise
from math import prod

from torch import nn

ALLOWED = {"width": 0.01, "hidden": 1, "activation": ("relu", "tanh")}


def mlp(shape, classes, hidden=(256, 256), width=1.0, activation="relu"):
    """Fully connected layers.

    Args:
        hidden: units of the hidden layers.
        width: multiplies them.
        activation: after each hidden layer, relu or tanh.
    """
    between = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]
    units = [prod(shape), *(max(1, round(width * n)) for n in hidden)]
    layers = [nn.Flatten()]
    for inputs, outputs in pairwise(units):
        layers += [nn.Linear(inputs, outputs), between()]
    return nn.Sequential(*layers, nn.Linear(units[-1], classes))
