"""A small transformer over a sequence of tokens; the mean of its outputs is classified.

Vaswani et al.: Attention Is All You Need. NeurIPS 2017. Norms come first, as in Xiong et al.: On
Layer Normalization in the Transformer Architecture. ICML 2020.
"""

from __future__ import annotations

import torch
from torch import nn


class _Transformer(nn.Module):
    def __init__(
        self,
        vocabulary: int,
        classes: int,
        longest: int,
        embedding: int,
        layers: int,
        heads: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(longest, embedding))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                embedding, heads, 4 * embedding, dropout, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(embedding)
        self.head = nn.Linear(embedding, classes)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        values = self.embedding(tokens) + self.places[: tokens.shape[1]]
        for block in self.blocks:
            values = block(values, src_key_padding_mask=~mask)
        shares = mask / mask.sum(dim=1, keepdim=True)
        return self.head((self.norm(values) * shares[:, :, None]).sum(dim=1))


def transformer(
    vocabulary: int,
    classes: int,
    shape: tuple[int, ...],
    embedding: int = 64,
    layers: int = 2,
    heads: int = 4,
    dropout: float = 0.1,
) -> nn.Module:
    return _Transformer(vocabulary, classes, shape[0], embedding, layers, heads, dropout)
