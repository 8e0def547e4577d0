"""The gradient of a large linear layer as a product of what is far smaller.

The gradient of the weight of y = x W^T + b is G^T X: X are the layer's inputs, (n, inputs) for n
samples, and G the gradients of its outputs, (n, outputs). Where n is small there is far less in X
and G than in their product, and each worker can compute the part of it that it needs: the
sufficient factors of Xie et al. 2016, "Lighter-Communication Distributed Machine Learning via
Sufficient Factor Broadcasting".
"""

import torch

# In smaller layers the calls from Python cost more than is gained.
FEWEST_WEIGHTS = 1 << 20
# By so much of its largest element may the product differ from autograd's gradient.
ROUNDING = 1e-4
ROWS = 16  # of both that are compared at once, for which there is room


def large_layers(model, world):
    """Weight -> its Factors, of each layer for which they may pay; collective."""
    found = {
        layer.weight: layer
        for layer in model.modules()
        if type(layer) is torch.nn.Linear
        and layer.bias is not None  # without one, nothing may be left for autograd to compute
        and layer.weight.requires_grad
        and layer.weight.is_contiguous()
        and layer.weight.numel() >= FEWEST_WEIGHTS
    }
    return {weight: Factors(layer, world) for weight, layer in found.items()}


class Factors:
    """The workers' average gradient of a layer's weight, as factors in shared memory.

    In the first step autograd computes the gradient, too. It goes on to do so where the product is
    another, as for a weight that is also used elsewhere or a gradient in bfloat16, or where the
    factors are no less to move.

    Attributes:
        used: whether the gradient is had from multiply() and autograd does not compute it; None:
            unknown before the first step.
    """

    def __init__(self, layer, world):
        self.weight, self.world, self.used = layer.weight, world, None
        self.calls = []  # of the layer: [inputs, gradients of outputs]
        self.hook = layer.register_forward_hook(self._note)

    def _note(self, layer, inputs, outputs):
        if outputs.requires_grad:
            call = [inputs[0].detach(), torch.zeros_like(outputs)]
            self.calls.append(call)
            outputs.register_hook(lambda gradient: call.__setitem__(1, gradient))

    def share(self, gradient):
        """Show the others this worker's factors, once backward() is done; collective.

        Args:
            gradient: what autograd gives for the weight, divided by the number of workers; read
                while `used` is None.
        """
        calls, self.calls = self.calls, []
        none, (outputs, inputs) = self.weight.new_zeros, self.weight.shape
        x = torch.cat([none(0, inputs), *(x.reshape(-1, inputs) for x, _ in calls)])
        g = torch.cat([none(0, outputs), *(g.reshape(-1, outputs) for _, g in calls)])
        g /= self.world.workers
        if self.used is None:
            self._decide(x, g, gradient)
        if self.used:
            for vectors, mine in ((self.inputs, x), (self.gradients, g)):
                vectors[self.world.rank, : len(mine)] = mine
                vectors[self.world.rank, len(mine) :] = 0

    def _decide(self, x, g, gradient):
        rows = torch.zeros(self.world.workers)
        rows[self.world.rank] = len(x) if _is_product(gradient, g, x) else torch.inf
        capacity = float(self.world.all_reduce(rows).max())
        outputs, inputs = self.weight.shape
        moved = capacity * self.world.workers * (outputs + inputs)
        self.used = moved < self.weight.numel() / 2
        if self.used:
            self.weight.requires_grad_(False)
            shape = self.world.workers, int(capacity)
            self.inputs = self.world.shared.zeros((*shape, inputs), x.dtype)
            self.gradients = self.world.shared.zeros((*shape, outputs), g.dtype)
        else:
            self.hook.remove()

    def multiply(self, begin, out):
        """Write the gradient of the flattened weight from `begin` on into out, (m,)."""
        x, g = self.inputs.flatten(0, 1), self.gradients.flatten(0, 1)
        width, done = x.shape[1], 0
        while done < len(out):
            row, column = divmod(begin + done, width)
            # Whole rows at once; else the rest of one.
            rows = max(1, (len(out) - done) // width if column == 0 else 0)
            columns = min(width - column, len(out) - done)
            part = out[done : done + rows * columns].view(rows, columns)
            torch.mm(g[:, row : row + rows].T, x[:, column : column + columns], out=part)
            done += rows * columns


def _is_product(gradient, g, x):
    largest = torch.linalg.vector_norm(gradient, torch.inf)
    parts = zip(g.T.split(ROWS), gradient.split(ROWS), strict=True)
    # Of zeros nothing can be seen.
    return largest > 0 and all(
        torch.dist(rows @ x, part, torch.inf) <= ROUNDING * largest for rows, part in parts
    )
