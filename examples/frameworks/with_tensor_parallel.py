"""Tensor parallelism: each rank has a part of every layer of a transformer, which reads a token at
a time, as when a language model answers. Two all-reduces of a few hundred numbers per layer."""

import sys
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

sys.path.append(str(Path(__file__).parents[2] / "scripts"))  # not needed once it is installed
import itertools

import allcores.backend  # noqa: F401

WIDTH, HEADS, LAYERS, WORDS, TOKENS = 256, 8, 4, 100, 100
PARTS = {name: ColwiseParallel() for name in ("heads", "up")}
PARTS |= {name: RowwiseParallel() for name in ("out", "down")}


class Layer(nn.Module):
    """Attention to what was read before, then two linear layers."""

    def __init__(self):
        super().__init__()
        linear = partial(nn.Linear, bias=False)
        self.heads, self.out = linear(WIDTH, 3 * WIDTH), linear(WIDTH, WIDTH)
        self.up, self.down = linear(WIDTH, 4 * WIDTH), linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.read = []  # the key and value of each token, of this rank's heads

    def forward(self, token):
        of_heads = self.heads(self.first(token)).view(-1, 3, 1, WIDTH // HEADS)
        query, *pair = of_heads.unbind(1)
        self.read.append(pair)
        keys, values = (torch.cat(of_all, 1) for of_all in zip(*self.read, strict=True))
        found = nn.functional.scaled_dot_product_attention(query, keys, values)
        token = token + self.out(found.flatten().unsqueeze(0))
        return token + self.down(nn.functional.gelu(self.up(self.second(token))))


dist.init_process_group(sys.argv[1])
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
embed, head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
layers = [parallelize_module(Layer(), mesh, PARTS) for _ in range(LAYERS)]
text = torch.randint(WORDS, (TOKENS + 1,))
loss, began = 0.0, time.perf_counter()
with torch.inference_mode():
    for token, following in itertools.pairwise(text):
        hidden = embed(token.view(1))
        for layer in layers:
            hidden = layer(hidden)
        loss += nn.functional.cross_entropy(head(hidden), following.view(1)).item() / TOKENS
speed = TOKENS / (time.perf_counter() - began)
if dist.get_rank() == 0:
    print(f"{sys.argv[1]}: loss {loss:.4f}, {speed:.0f} tokens per second")
dist.destroy_process_group()
