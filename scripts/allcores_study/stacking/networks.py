"""Small networks of one shape, stacked: each operation computes all of them at once.

A network of a few hundred weights computes for a fifth of the time that Python and torch take to
call each other. In a stack, the K networks share the calls: their weights have a leading dimension,
and a linear layer is one batched product. Results do not depend, bit for bit, on how many networks
share a stack. Only a plain torch.nn.Sequential can be stacked: what its layers compute is known.

Shapes: K networks, B samples of each, F features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

# Modules that treat every element separately.
ELEMENTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Tanh, nn.Sigmoid, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Softplus, nn.Softsign),
    nn.Identity,
)
LINE = 16  # float32 numbers of a cache line
# A multiple of what torch's kernels compute at a time; they round the remainder differently.
ROWS = 32
# What may be called besides the forward() of a module, or on a gradient.
HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    "_post_accumulate_grad_hooks",
)


def padded(count: int, step: int = LINE) -> int:
    """Return the next multiple of a number."""
    return -(-count // step) * step


def _places(shape: torch.Size) -> int:
    """Return how many numbers a parameter takes in a row of weights."""
    return shape[0] * padded(shape[1]) if len(shape) > 1 else shape.numel()


def problem(model: nn.Module, shape: tuple[int, ...]) -> str | None:
    """Return why a network cannot be stacked; None: it can be.

    Args:
        shape: shape of a sample.
    """
    if type(model) is not nn.Sequential:
        return f"its network is a {type(model).__name__}, not a plain torch.nn.Sequential"
    for name, layer in _layers(model):
        if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            shape = (math.prod(shape),)
        elif type(layer) is nn.Linear and shape == (layer.in_features,):
            shape = (layer.out_features,)
        elif type(layer) not in ELEMENTWISE or getattr(layer, "inplace", False):
            return f"its layer {name} is a {layer}, for samples of the shape {shape}"
    parameters = [value for _, value in model.named_parameters(remove_duplicate=False)]
    if any(value.dtype != torch.float32 or not value.requires_grad for value in parameters):
        return "some of its weights are not float32, or not trained"
    places = {value.untyped_storage().data_ptr() for value in parameters if value.numel()}
    if len(places) < sum(value.numel() > 0 for value in parameters):
        return "it shares weights"
    if any(True for part in (*model.parameters(recurse=False), *model.buffers())):
        return "it has weights or buffers besides those of its layers"
    parts = (*model.modules(), *parameters)
    if any(getattr(part, name, None) for part in parts for name in HOOKS):
        return "it has hooks"
    if any("forward" in vars(part) for part in model.modules()):
        return "a part of it has a forward() of its own"
    return None


def _layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return (name, layer) for each layer in order; named_children() omits repeated ones."""
    return list(model._modules.items())  # type: ignore[arg-type]


class Stack:
    """K networks of one shape.

    Args:
        models: networks for which problem() finds nothing, with equal layers.

    Attributes:
        weights, gradients: (K, n) float32 each, all weights of a network in a row. Each parameter
            begins at a cache line, because the order of sums in products may depend on the address.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.layers = _layers(models[0])
        named = [dict(model.named_parameters()) for model in models]
        self.shapes = {name: value.shape for name, value in named[0].items()}
        length = sum(padded(_places(shape)) for shape in self.shapes.values())
        self.weights = torch.zeros(len(models), length)
        self.gradients = torch.zeros(len(models), length)
        self.parameters = self._views(self.weights)
        for name, values in self.parameters.items():
            given = torch.stack([one[name].detach() for one in named])
            values[..., : given.shape[-1]] = given
        for values in self.parameters.values():
            values.requires_grad_()
        self._of_parameters = list(self._views(self.gradients).values())

    def _views(self, vectors: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return name of each parameter -> its part of (K, n) vectors.

        A part is (K, F), or (K, out, in), where `in` is padded to whole cache lines by weights that
        are 0 and stay so.
        """
        views, start = {}, 0
        for name, shape in self.shapes.items():
            part = vectors[:, start : start + _places(shape)]
            views[name] = part.unflatten(1, (shape[0], -1)) if len(shape) > 1 else part
            start += padded(_places(shape))
        return views

    def scores(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the networks' scores, (K, B, outputs), of inputs, (K, B, ...) float32."""
        for name, layer in self.layers:
            if isinstance(layer, nn.Flatten):
                inputs = inputs.flatten(2)
            elif isinstance(layer, nn.Linear):
                inputs = self._linear(name, inputs)
            else:
                inputs = layer(inputs)
        return inputs

    def _linear(self, name: str, inputs: torch.Tensor) -> torch.Tensor:
        weight, bias = self.parameters[f"{name}.weight"], self.parameters.get(f"{name}.bias")
        # Padded, so that the product that is each network's weight gradient begins at a cache line.
        inputs, count = F.pad(inputs, (0, weight.shape[2] - inputs.shape[2])), len(inputs)
        if count == 1:
            # Twice: other kernels multiply a lone matrix of one column, and round differently.
            inputs, weight = inputs.repeat(2, 1, 1), weight.repeat(2, 1, 1)
        if bias is None:
            return torch.bmm(inputs, weight.transpose(1, 2))[:count]
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight.transpose(1, 2))[:count]

    def differentiate(self, loss: torch.Tensor) -> None:
        """Set the gradients to those of the sum of the networks' losses."""
        found = torch.autograd.grad(loss, list(self.parameters.values()))
        for gradient, value in zip(self._of_parameters, found, strict=True):
            gradient.copy_(value)

    def state_dict(self, number: int, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the state_dict of a network.

        Args:
            weights: like the attribute of this name.
        """
        values = self._views(weights[number : number + 1])
        return {
            name: values[name][0][..., : shape[-1]].clone() for name, shape in self.shapes.items()
        }
