"""A model as one vector of weights and one of gradients."""

import torch

# Bytes of a cache line. MKL and oneDNN choose by the address of a tensor in which order they add,
# so a parameter has to begin at a line, as a separate tensor would: then it gives the same bits.
LINE = 64


class Flat:
    """Turns a model's parameters and their gradients into views of two vectors.

    So one contiguous vector is sent, averaged or updated: autograd adds each gradient at its place
    in one, and the model computes with the content of the other. The model keeps its values and
    strides (channels_last, too). Each parameter begins at a new cache line; the padding between two
    is zero and stays so.

    Args:
        model: its trainable parameters must have one dtype.
        weights, gradient: functions of a shape and a dtype that return a tensor of zeros.

    Attributes:
        parameters: the trainable ones of the model, in their order in the vectors.
        places: parameter -> its slice of the vectors.
        weights, gradient: (n,) of the parameters' dtype, n a multiple of a cache line.
        vector: both vectors as one torch.nn.Parameter with .grad, for an optimizer.

    Raises:
        ValueError: the parameters have several dtypes.
    """

    def __init__(self, model, weights=torch.zeros, gradient=torch.zeros):
        self.parameters = [value for value in model.parameters() if value.requires_grad]
        dtypes = {parameter.dtype for parameter in self.parameters}
        if len(dtypes) != 1:
            raise ValueError(f"parameters of one dtype make one vector; found {dtypes or 'none'}")
        (dtype,) = dtypes
        line = LINE // dtype.itemsize
        self.places, length = {}, 0
        for parameter in self.parameters:
            self.places[parameter] = slice(length, length + parameter.numel())
            length += -(-parameter.numel() // line) * line
        self.weights = weights((length,), dtype=dtype)
        self.gradient = gradient((length,), dtype=dtype)
        for parameter, where in self.places.items():
            shape, stride = parameter.shape, parameter.stride()
            values = self.weights[where].as_strided(shape, stride)
            values.copy_(parameter.detach())
            parameter.data, parameter.grad = values, self.gradient[where].as_strided(shape, stride)
        (self.vector,) = self.slices(1)

    def slices(self, count):
        """The vectors in `count` parts, as split() cuts them, as parameters for an optimizer.

        Right for optimizers that treat every element separately; others need the tensors' shapes.
        """
        parts = []
        for weights, gradient in zip(
            split(self.weights, count), split(self.gradient, count), strict=True
        ):
            part = torch.nn.Parameter(weights)
            part.grad = gradient
            parts.append(part)
        return parts


def split(vector, count):
    """Cut a vector of whole cache lines into `count` views of whole lines, almost equally long."""
    lines = vector.view(-1, LINE // vector.element_size())
    return [part.flatten() for part in lines.tensor_split(count)]
