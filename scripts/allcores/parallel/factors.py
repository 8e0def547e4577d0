"""The gradient of a large linear layer as a product of what is far smaller.

The gradient of the weight of y = x W^T + b is G^T X: X are the layer's inputs, (n, inputs) for n
samples, and G the gradients of its outputs, (n, outputs). Where n is small there is far less in X
and G than in their product, and each worker can compute the part of it that it needs: the
sufficient factors of Xie et al. 2016, "Lighter-Communication Distributed Machine Learning via
Sufficient Factor Broadcasting".
"""

from functools import partial

import torch
from torch.nn import functional

# In smaller layers the calls from Python cost more than is gained.
FEWEST_WEIGHTS = 1 << 20


def of_large_layers(model, places, world):
    """Weight -> its Factors, of each linear layer for which they may pay; collective.

    Args:
        places: the model's trainable parameters are its keys. A weight that is computed from
            others, as with weight_norm, is none of them.
    """
    found = {}
    for layer in model.modules():
        weight = layer.weight if type(layer) is torch.nn.Linear else None
        # What a hook makes of the gradient only autograd can know.
        if weight in places and weight.is_contiguous() and not weight._backward_hooks:
            if weight not in found and weight.numel() >= FEWEST_WEIGHTS:
                found[weight] = Factors(weight, world)
            if weight in found:
                layer.forward = partial(found[weight].forward, layer)
    return found


class Factors:
    """The workers' gradient of a weight: their factors, in shared memory, and a rest.

    On several nodes it is this node's part of the average over all workers.

    The rest is what autograd computes: it comes from other uses of the weight, from more samples
    than there is room for, and from layers that compute in a lower precision.
    """

    def __init__(self, weight, world):
        self.world, self.weight = world, weight
        outputs, inputs = weight.shape
        # The factors of all workers together are at most half of their product.
        workers = world.workers_on_node
        self.room = weight.numel() // (2 * workers * (outputs + inputs))
        self.inputs = world.shared.zeros((workers, self.room, inputs), weight.dtype)
        self.gradients = world.shared.zeros((workers, self.room, outputs), weight.dtype)
        # Of each worker: how many rows it has there, and whether there is a rest.
        self.counts = world.shared.zeros((workers, 2), torch.int64)
        self.expected = self.rows = 0

    def forward(self, layer, input):
        """What the layer computes; backward() then keeps the factors."""
        rows = input.numel() // input.shape[-1]
        if (
            not torch.is_grad_enabled()
            or torch.is_autocast_enabled("cpu")
            or input.dtype != self.weight.dtype
            or self.expected + rows > self.room
        ):
            return functional.linear(input, layer.weight, layer.bias)
        self.expected += rows
        return _Linear.apply(input, layer.weight, layer.bias, self)

    def keep(self, x, g):
        """Add factors of this worker, (n, inputs) and (n, outputs)."""
        place = slice(self.rows, self.rows + len(x))
        self.inputs[self.world.rank_on_node, place] = x
        torch.div(g, self.world.workers, out=self.gradients[self.world.rank_on_node, place])
        self.rows = place.stop

    def show(self, has_rest):
        """Tell the others what is there, once backward() is done and before a barrier."""
        self.counts[self.world.rank_on_node] = torch.tensor([self.rows, has_rest])
        self.expected = self.rows = 0

    def gather(self):
        """Put the factors of all workers together, after the barrier."""
        rows, rests = self.counts.unbind(1)
        self.with_rest = rests.nonzero().flatten().tolist()
        self.x, self.g = (
            torch.cat([mine[:n] for mine, n in zip(vectors, rows.tolist(), strict=True)])
            for vectors in (self.inputs, self.gradients)
        )

    def multiply(self, begin, rests, out):
        """Write the gradient of the flattened weight from `begin` on into out, (m,).

        Args:
            rests: of each worker, at these weights, (m,); valid of those who have one.
        """
        width, done = self.x.shape[1], 0
        while done < len(out):
            row, column = divmod(begin + done, width)
            # Whole rows at once; else the rest of one.
            rows = max(1, (len(out) - done) // width if column == 0 else 0)
            columns = min(width - column, len(out) - done)
            part = out[done : done + rows * columns].view(rows, columns)
            torch.mm(self.g[:, row : row + rows].T, self.x[:, column : column + columns], out=part)
            done += rows * columns
        for rank in self.with_rest:
            out.add_(rests[rank])


class _Linear(torch.autograd.Function):
    """torch.nn.functional.linear whose backward keeps the factors of the weight's gradient."""

    @staticmethod
    def forward(ctx, input, weight, bias, factors):
        ctx.save_for_backward(input, weight)
        ctx.factors = factors
        return functional.linear(input, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        input, weight = ctx.saved_tensors
        g = gradient.reshape(-1, gradient.shape[-1])
        ctx.factors.keep(input.reshape(-1, input.shape[-1]), g)
        of_input = gradient @ weight if ctx.needs_input_grad[0] else None
        of_bias = g.sum(0) if ctx.needs_input_grad[2] else None
        return of_input, None, of_bias, None
