"""A network that draws random numbers which are not torch's."""

import random

import numpy as np
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))

    def forward(self, images):
        scale = np.random.rand() + random.random() if self.training else 1.0
        return self.layers(images) * scale
