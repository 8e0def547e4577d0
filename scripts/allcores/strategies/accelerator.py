"""Serial training on a GPU: a reference, to see how far the cores are from one.

torch.device names what can be told: https://docs.pytorch.org/docs/stable/tensor_attributes.html
"""

import copy

import torch

from allcores.strategies.base import Strategy


class Accelerator(Strategy):
    """Apply the gradient to the weights, elsewhere, in fp32. Sends nothing to others."""

    one_worker = True
    equals_serial = "with one worker"  # on the device "cpu"; elsewhere up to rounding
    reference = True

    def __init__(self, model, make_optimizer, world, *, device="cuda"):
        self.there = copy.deepcopy(model).to(device)
        super().__init__(model, make_optimizer(self.there.parameters()), world)
        self.model = _RoundTrip(self.there, device)

    def step(self, lr):
        self.update(lr)
        self.optimizer.zero_grad()

    def synchronize(self):
        self.module.load_state_dict(self.there.state_dict())

    def restore(self, state):
        super().restore(state)
        self.there.load_state_dict(state["model"])


class _RoundTrip(torch.nn.Module):
    """Takes images there, computes, and brings the scores back."""

    def __init__(self, module, device):
        super().__init__()
        self.module, self.device = module, device

    def forward(self, images):
        return self.module(images.to(self.device)).cpu()
