"""An LSTM over a sequence of tokens; its last states are classified.

Hochreiter, Schmidhuber: Long Short-Term Memory. Neural Computation 9, 1997.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class _LSTM(nn.Module):
    def __init__(
        self,
        vocabulary: int,
        classes: int,
        embedding: int,
        hidden: int,
        bidirectional: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.recurrent = nn.LSTM(embedding, hidden, batch_first=True, bidirectional=bidirectional)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden * (2 if bidirectional else 1), classes)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        words = pack_padded_sequence(
            self.embedding(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, (states, _) = self.recurrent(words)
        return self.head(self.dropout(torch.cat([*states], dim=1)))


def lstm(
    vocabulary: int,
    classes: int,
    embedding: int = 64,
    hidden: int = 64,
    bidirectional: bool = True,
    dropout: float = 0.0,
) -> nn.Module:
    return _LSTM(vocabulary, classes, embedding, hidden, bidirectional, dropout)
