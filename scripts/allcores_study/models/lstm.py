"""An LSTM over a sequence of tokens; its last states are classified.

Hochreiter, Schmidhuber: Long Short-Term Memory. Neural Computation 9, 1997.
"""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence


class _LSTM(nn.Module):
    def __init__(self, vocabulary, classes, embedding, hidden, bidirectional, dropout):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.recurrent = nn.LSTM(embedding, hidden, batch_first=True, bidirectional=bidirectional)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden * (2 if bidirectional else 1), classes)

    def forward(self, tokens, lengths):
        words = pack_padded_sequence(
            self.embedding(tokens), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, (states, _) = self.recurrent(words)
        return self.head(self.dropout(torch.cat([*states], dim=1)))


def lstm(vocabulary, classes, embedding=64, hidden=64, bidirectional=True, dropout=0.0):
    return _LSTM(vocabulary, classes, embedding, hidden, bidirectional, dropout)
