"""A model as one vector of weights and one of gradients."""

import torch


class Flat:
    """Turns a model's parameters and their gradients into views of two vectors.

    What is sent, averaged or updated is one contiguous vector then: autograd adds each gradient to
    its place in it, and the model computes with whatever the vector of weights holds. The model
    keeps its values and strides (channels_last, too).

    Args:
        model: its trainable parameters must have one dtype.
        weights, gradient: called with a shape and a dtype, give the memory for each; zeros.

    Attributes:
        parameters: the model's trainable ones, in their order in the vectors.
        weights, gradient: (n,).
        whole: both as one parameter for an optimizer.

    Raises:
        ValueError: the parameters have several dtypes.
    """

    def __init__(self, model, weights=torch.zeros, gradient=torch.zeros):
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        dtypes = {parameter.dtype for parameter in self.parameters}
        if len(dtypes) != 1:
            raise ValueError(f"parameters of one dtype make one vector; found {dtypes or 'none'}")
        length = sum(parameter.numel() for parameter in self.parameters)
        (dtype,) = dtypes
        self.weights = weights((length,), dtype=dtype)
        self.gradient = gradient((length,), dtype=dtype)
        offset = 0
        for parameter in self.parameters:
            where = slice(offset, offset + parameter.numel())
            layout = parameter.shape, parameter.stride()
            values = self.weights[where].as_strided(*layout)
            values.copy_(parameter.detach())
            parameter.data, parameter.grad = values, self.gradient[where].as_strided(*layout)
            offset += parameter.numel()
        (self.whole,) = self.slices(1)

    def slices(self, count):
        """The vector in so many parts of nearly equal length, as parameters for an optimizer.

        Right for optimizers that treat every element alone; others need the tensors' shapes.
        """
        parts = []
        for weights, gradient in zip(
            self.weights.tensor_split(count), self.gradient.tensor_split(count), strict=True
        ):
            part = torch.nn.Parameter(weights)
            part.grad = gradient
            parts.append(part)
        return parts
