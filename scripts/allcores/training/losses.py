"""torch's losses for classification, by name."""

import torch.nn.functional as F

from allcores.study import registry

# Scores (n, classes) against class numbers (n,).
CLASS_TARGETS = ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss")
# Scores (n, classes) against as many zeros and ones.
ONE_HOT_TARGETS = (
    "BCEWithLogitsLoss",
    "HuberLoss",
    "L1Loss",
    "MSELoss",
    "MultiLabelSoftMarginLoss",
    "SmoothL1Loss",
)


def build(name, options):
    """A function of scores (n, classes) float32 and labels (n,) int64, giving the mean loss."""
    loss = registry.losses()[name].load()(**options)
    if name in CLASS_TARGETS:
        return loss
    return lambda scores, labels: loss(scores, F.one_hot(labels, scores.shape[1]).to(scores.dtype))
