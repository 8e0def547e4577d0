"""Modules of users': some that can be stacked, and some that compute otherwise in a stack."""

import itertools

import numpy as np
import torch
from torch import nn


class Skipping(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.first, self.norm = nn.Linear(shape[0], 12), nn.LayerNorm(12)
        self.second, self.act = nn.Linear(12, 12, bias=False), nn.GELU()
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(12, classes)

    def forward(self, x):
        x = self.norm(torch.relu(self.first(x.flatten(1))))
        return self.last(self.drop(x + self.act(self.second(x))))


class Normed(nn.Sequential):
    def __init__(self, shape, classes):
        layers = nn.Linear(shape[0], 10, bias=False), nn.BatchNorm1d(10), nn.Tanh(), nn.Dropout(0.2)
        super().__init__(nn.Flatten(), *layers, nn.Linear(10, classes))


class Convolving(nn.Sequential):
    def __init__(self, shape, classes):
        super().__init__(nn.Unflatten(1, (1, -1)), nn.Conv1d(1, 2, 3), nn.Flatten())
        self.append(nn.LazyLinear(classes))


class Looking(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.last = nn.Linear(shape[0], classes)

    def forward(self, x):
        return self.last(x) if x.sum() > 0 else -self.last(-x)


class Deep(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.first, self.last = nn.Linear(shape[-1], 4), nn.Linear(4, classes)

    def forward(self, x):
        return self.last(torch.flatten(self.first(x), 1))


class Hooked(Normed):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self[1].register_forward_hook(lambda module, inputs, output: 2 * output)


class Noisy(Normed):
    def forward(self, x):
        return super().forward(x + np.random.rand())


class Counting(Normed):
    _calls = 0

    def forward(self, x):
        self._calls += 1
        return super().forward(x)


class Curved(nn.Sequential):
    def __init__(self, shape, classes):
        layers = nn.Linear(shape[0], 5), nn.Sigmoid(), nn.Linear(5, 3), nn.GELU("tanh")
        super().__init__(nn.Flatten(), *layers, nn.Linear(3, classes))


class Switched(Normed):
    def forward(self, x):
        first, second, *others = self
        with torch.no_grad():
            x = second(first(x))
        for part in others:
            x = part(x)
        return x


class Frozen(Normed):
    def train(self, mode=True):
        super().train(mode)
        self[2].eval()
        return self


class Dropping(Normed):
    def forward(self, x):
        return super().forward(x) if torch.rand(1).item() < 0.999 else super().forward(0 * x)


class Zeroed(nn.Module):
    """Of which the last layer hides, at first, that the dropout changes what is added to it."""

    def __init__(self, shape, classes):
        super().__init__()
        self.first, self.last = nn.Linear(shape[0], 6), nn.Linear(6, classes)
        self.drop = nn.Dropout(0.5, inplace=True)
        nn.init.zeros_(self.last.weight)

    def forward(self, x):
        h = self.first(x.flatten(1))
        return self.last(h + self.drop(h))


class Watched(Normed):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self[1].weight.register_post_accumulate_grad_hook(lambda value: value.grad.clamp_(-1, 1))


class Tied(nn.Sequential):
    def __init__(self, shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(shape[0], 4), nn.Linear(4, 4), nn.Linear(4, 4))
        self[3].weight.data = self[2].weight.data
        self.append(nn.Linear(4, classes))


class Unused(Normed):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.extra = nn.Linear(shape[0], 2)

    def forward(self, x):
        *parts, extra = self
        extra(x)
        for part in parts:
            x = part(x)
        return x


class Drawn(nn.Module):
    """With a number that is no weight."""

    def __init__(self, shape, classes):
        super().__init__()
        self.first, self.last = nn.Linear(shape[0], 6), nn.Linear(6, classes)
        self.scale = 3 * float(torch.rand(1))

    def forward(self, x):
        return self.last(self.scale * torch.tanh(self.first(x.flatten(1))))


class Evaluating(nn.Module):
    """That is not yet told to train, and computes otherwise when it is."""

    def __init__(self, shape, classes):
        super().__init__()
        self.first, self.last = nn.Linear(shape[0], 6), nn.Linear(6, classes)
        self.eval()

    def forward(self, x):
        h = self.first(x.flatten(1))
        return self.last(torch.relu(h) if self.training else h)


class Plain(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.first, self.last = nn.Linear(shape[0], 7), nn.Linear(7, classes)
        self.norm = nn.LayerNorm(7, elementwise_affine=False)
        self.act = nn.LeakyReLU(0.2, inplace=False)

    def forward(self, x):
        return self.last(self.act(self.norm(self.first(torch.flatten(x, 1)))) * 2 - 1)


class Temperature:
    def __init__(self):
        self.steps, self.factor = 0, 1.0

    def __call__(self, x):
        self.steps += 1
        self.factor = 1.0 if self.steps <= 30 else 0.5
        return self.factor * x


class Stateful(Normed):
    """That keeps its state in an object."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.temperature = Temperature()

    def forward(self, x):
        for part in self:
            x = part(x)
        return self.temperature(x)


class Hidden(Stateful):
    """Whose object looks the same however often it was called."""

    def forward(self, x):
        self.temperature.steps += 1
        for part in self:
            x = part(x)
        return x


CALLS = []


class Global(Normed):
    def forward(self, x):
        for part in self:
            x = part(x)
        return x * (1.0 if len(CALLS) < 30 else 0.5)


def with_closure(shape, classes):
    factors = iter([1.0] * 30 + [0.5] * 10_000)

    class Closed(Normed):
        def forward(self, x):
            for part in self:
                x = part(x)
            return x * next(factors)

    return Closed(shape, classes)


def with_another_forward(shape, classes):
    model = Curved(shape, classes)
    calls = iter(range(10_000))
    model[2].forward = lambda x: torch.sigmoid(x) * (1.0 if next(calls) < 30 else 0.5)
    return model


class Clamped(Skipping):
    def forward(self, x):
        self.last._parameters["weight"].data.clamp_(-0.1, 0.1)
        return self.last(torch.relu(self.first(x.flatten(1))))


class Property(Skipping):
    """With a property that has the name of a method of tensors."""

    @property
    def tanh(self):
        return lambda x: x

    def forward(self, x):
        return self.last(self.tanh(self.first(x.flatten(1))))


class Methodical(nn.Module):
    """With methods, constants, lists of layers and a loop over them."""

    slope = 2

    def __init__(self, shape, classes):
        super().__init__()
        units = [shape[0], 8, 8]
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(units)])
        self.last, self.scales = nn.Linear(8, classes), (1.0, 0.5)

    def hidden(self, x):
        for layer, scale in zip(self.layers, self.scales):  # noqa: B905
            x = scale * torch.relu(layer(x))
        return x

    def forward(self, x):
        return self.last(self.hidden(x.flatten(1))) * self.slope


class BiasBeforeNorm(nn.Sequential):
    def __init__(self, shape, classes):
        layers = nn.Linear(shape[0], 10), nn.BatchNorm1d(10), nn.ReLU()
        super().__init__(nn.Flatten(), *layers, nn.Linear(10, classes))
