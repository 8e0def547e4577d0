"""Networks of users': plain ones, which can be stacked, and ones that compute otherwise."""

import numpy as np
import torch
from torch import nn


def _layers(shape, classes, *between):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 10), *between, nn.Linear(10, classes))


def curved(shape, classes):
    return _layers(shape, classes, nn.GELU(), nn.Linear(10, 10, bias=False), nn.Softplus(beta=2.0))


def dropping(shape, classes):
    return _layers(shape, classes, nn.Dropout(0.2))


def normed(shape, classes):
    return _layers(shape, classes, nn.BatchNorm1d(10))


def in_place(shape, classes):
    return _layers(shape, classes, nn.ReLU(inplace=True))


def hooked(shape, classes):
    model = _layers(shape, classes)
    model[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


def hooked_gradient(shape, classes):
    model = _layers(shape, classes)
    model[1].weight.register_post_accumulate_grad_hook(lambda weight: weight.grad.mul_(2))
    return model


def tied(shape, classes):
    model = _layers(shape, classes, nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 10))
    model[4].weight = model[2].weight
    return model


def frozen(shape, classes):
    model = _layers(shape, classes)
    model[1].bias.requires_grad_(False)
    return model


class Named(nn.Sequential):
    """It may have a forward() of its own."""

    def __init__(self, shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(shape[0], classes))


def drawn(shape, classes):
    """A network whose first weights numpy has drawn."""
    model = _layers(shape, classes, nn.ReLU())
    weights = np.random.default_rng(np.random.randint(1000)).normal(size=model[1].weight.shape)
    model[1].weight.data.copy_(torch.from_numpy(weights))
    return model


def twice(shape, classes):
    activation = nn.ReLU()
    return _layers(shape, classes, activation, nn.Linear(10, 10), activation)


def with_buffer(shape, classes):
    model = _layers(shape, classes)
    model.register_buffer("offset", torch.zeros(3))
    return model


def with_weight(shape, classes):
    model = _layers(shape, classes)
    model.register_parameter("temperature", nn.Parameter(torch.ones(1)))
    return model


def replaced(shape, classes):
    model = _layers(shape, classes)
    model[1].forward = lambda inputs: inputs * 2
    return model
