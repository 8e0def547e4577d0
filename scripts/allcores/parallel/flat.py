"""A model as one vector of weights and one of gradients."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn


# Bytes of a cache line. MKL and oneDNN choose the order of additions by the address of a tensor. So
# a parameter has to begin at a line, as a separate tensor would, to give the same bits.
LINE = 64


class Flat:
    """A model's parameters and their gradients as views of two vectors.

    So one contiguous vector is sent, averaged or updated. Autograd adds each gradient at its place
    in one vector, and the model computes with the content of the other. The model keeps its values
    and strides, including channels_last, but gaps in views are closed. Each parameter begins at a
    new cache line; the padding between two stays zero.

    Args:
        model: its trainable parameters must have one dtype.
        weights, gradient: functions of a shape and a dtype that return a tensor of zeros.

    Attributes:
        parameters: the trainable parameters of the model, in their order in the vectors.
        places: parameter -> its slice of the vectors.
        weights, gradient: (n,) of the parameters' dtype, n a multiple of a cache line.
        gradients: parameter -> its part of the gradient, in its shape.
        parts: the vectors as torch.nn.Parameters with .grad, for an optimizer: see cut().

    Raises:
        ValueError: two parameters share memory.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: Callable[..., Tensor] = torch.zeros,
        gradient: Callable[..., Tensor] = torch.zeros,
    ) -> None:
        self.parameters = [value for value in model.parameters() if value.requires_grad]
        addresses = [value.data_ptr() for value in self.parameters if value.numel()]
        if len(set(addresses)) < len(addresses):
            raise ValueError("two parameters share memory; expected one Parameter, used twice")
        (dtype,) = {parameter.dtype for parameter in self.parameters}  # see Strategy.refusal()
        line = LINE // dtype.itemsize
        self.places, length = {}, 0
        for parameter in self.parameters:
            self.places[parameter] = slice(length, length + parameter.numel())
            length += -(-parameter.numel() // line) * line
        self.weights = weights((length,), dtype=dtype)
        self.gradient = gradient((length,), dtype=dtype)
        self.gradients = {}
        for parameter, where in self.places.items():
            like = parameter.shape, torch.empty_like(parameter, device="meta").stride()
            values = self.weights[where].as_strided(*like)
            values.copy_(parameter.detach())
            parameter.data = values
            parameter.grad = self.gradients[parameter] = self.gradient[where].as_strided(*like)
        self.parts = [part for _, part in self.cut(slice(0, length), self.gradient)]

    def collect(self) -> None:
        """Copy gradients that are elsewhere into the vector.

        After zero_grad(), autograd has created new gradients, or none, which count as zero.
        """
        for parameter, part in self.gradients.items():
            if parameter.grad is None:
                part.zero_()
            elif parameter.grad is not part:
                part.copy_(parameter.grad.detach())
            parameter.grad = part

    def cut(self, where: Any, gradient: Tensor) -> list[Any]:
        """Cut a slice of the vectors into parameters for an optimizer, where the model's begin.

        torch's fused optimizers round the last elements of a tensor, too few for a vector register,
        differently from those before. So the optimizer of a strategy gets tensors that end where
        those of serial training do, and computes the same bits. This suits optimizers that treat
        every element separately; others need the tensors' shapes.

        Args:
            where: slice of whole cache lines.
            gradient: that slice of a gradient, (where.stop - where.start,).

        Returns:
            [(its place in the vectors, 1-D torch.nn.Parameter with .grad), ...]; at least one,
            which is empty if there is only padding.
        """
        cuts = [
            slice(max(place.start, where.start), min(place.stop, where.stop))
            for place in self.places.values()
        ]
        cuts = [cut for cut in cuts if cut.start < cut.stop] or [slice(where.start, where.start)]
        parts = [torch.nn.Parameter(self.weights[cut]) for cut in cuts]
        for cut, part in zip(cuts, parts, strict=True):
            part.grad = gradient[cut.start - where.start : cut.stop - where.start]
        return list(zip(cuts, parts, strict=True))


def split(vector: Tensor, count: int) -> list[Tensor]:
    """Cut a vector of whole cache lines into `count` views of whole lines, of almost one length."""
    return [vector[where] for where in places(vector, count)]


def places(vector: Tensor, count: int) -> list[slice]:
    """Return the slices of the views that split() returns."""
    line = LINE // vector.element_size()
    lines, rest = divmod(len(vector) // line, count)
    ends = accumulate(line * (lines + (part < rest)) for part in range(count))
    return [slice(begin, end) for begin, end in pairwise([0, *ends])]
