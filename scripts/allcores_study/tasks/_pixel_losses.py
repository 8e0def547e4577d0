"""Losses for segmentation, averaged over images; pixels without a class do not count."""

from __future__ import annotations

from typing import Any

import torch

from allcores_study.tasks.base import WITHOUT_CLASS

ALLOWED = {"smooth": 0.0, "cross_entropy": 0.0}  # the least values


class DiceLoss(torch.nn.Module):
    """Dice loss: 1 - the mean over classes of 2 |A and B| / (|A| + |B|), averaged over images.

    Probabilities count as shares of pixels. Milletari, Navab, Ahmadi: V-Net: Fully Convolutional
    Neural Networks for Volumetric Medical Image Segmentation. 3DV 2016.

    Args:
        smooth: added to numerator and denominator, so that an absent class has no loss.
        cross_entropy: weight of the cross-entropy that is added.
    """

    def __init__(self, smooth: float = 1.0, cross_entropy: float = 0.0) -> None:
        super().__init__()
        self.smooth, self.cross_entropy = smooth, cross_entropy

    def forward(self, scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        has_class = (targets != WITHOUT_CLASS)[:, None]
        shares = scores.softmax(dim=1) * has_class
        classes = torch.where(targets == WITHOUT_CLASS, 0, targets)
        true = torch.zeros_like(shares).scatter_(1, classes[:, None], 1.0) * has_class
        common = (shares * true).flatten(2).sum(dim=2)
        sizes = (shares + true).flatten(2).sum(dim=2)
        smooth = max(self.smooth, 1e-6)  # an image may have no pixel of a class
        loss = 1 - ((2 * common + smooth) / (sizes + smooth)).mean()
        if self.cross_entropy:
            loss = loss + self.cross_entropy * cross_entropy(scores, targets)
        return loss


def cross_entropy(
    scores: torch.Tensor, targets: torch.Tensor, weight: torch.Tensor | None = None, **options: Any
) -> torch.Tensor:
    """Return the mean loss over all pixels, where those without a class have none.

    So each image counts as much as any other, and workers can share a batch.
    """
    options |= {"ignore_index": WITHOUT_CLASS, "reduction": "none"}
    return torch.nn.functional.cross_entropy(scores, targets, weight, **options).mean()
