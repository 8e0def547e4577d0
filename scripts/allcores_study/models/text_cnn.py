"""Convolutions over the words of a text (Kim 2014).

Kim: Convolutional Neural Networks for Sentence Classification. EMNLP 2014.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class _TextCNN(nn.Module):
    def __init__(
        self,
        vocabulary: int,
        classes: int,
        embedding: int,
        channels: int,
        widths: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(embedding, channels, width, padding=width - 1) for width in widths
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(channels * len(widths), classes)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        words = self.embedding(tokens).transpose(1, 2)
        features: list[torch.Tensor] = []
        for convolution in self.convolutions:
            values = convolution(words)
            # Windows that begin after the last token see only padding.
            ends = lengths + convolution.kernel_size[0] - 1  # type: ignore[index]
            is_padding = torch.arange(values.shape[2], device=ends.device) >= ends[:, None]
            values = values.masked_fill(is_padding[:, None], float("-inf"))
            features.append(values.amax(dim=2).relu())
        return self.head(self.dropout(torch.cat(features, dim=1)))


def text_cnn(
    vocabulary: int,
    classes: int,
    embedding: int = 64,
    features: int = 32,
    widths: Sequence[int] = (3, 4, 5),
    dropout: float = 0.5,
) -> nn.Module:
    return _TextCNN(vocabulary, classes, embedding, features, widths, dropout)
