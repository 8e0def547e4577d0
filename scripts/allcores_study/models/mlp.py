"""A multilayer perceptron: the shallow network on which CPUs do well, for samples of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn

MAY_BE_STACKED = True  # see stacking/stacks.py
ALLOWED = {"width": 0.01, "hidden": 1, "activation": ("relu", "tanh")}


def mlp(
    shape: tuple[int, ...],
    classes: int,
    hidden: Sequence[int] = (256, 256),
    width: float = 1.0,
    activation: str = "relu",
) -> nn.Sequential:
    """Fully connected layers.

    Args:
        hidden: units of the hidden layers.
        width: multiplies them.
        activation: after each hidden layer, relu or tanh.
    """
    between = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]
    units = [prod(shape), *(max(1, round(width * n)) for n in hidden)]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(units):
        layers += [nn.Linear(inputs, outputs), between()]
    return nn.Sequential(*layers, nn.Linear(units[-1], classes))
