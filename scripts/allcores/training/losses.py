"""torch's losses by name, for classes and for numbers."""

import torch
import torch.nn.functional as F

from allcores.study import registry

# Scores (n, classes) against class numbers (n,).
CLASS_TARGETS = ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss")
# Scores (n, classes) against as many zeros and ones, or one score (n, 1) against a number.
NUMBER_TARGETS = ("HuberLoss", "L1Loss", "MSELoss", "SmoothL1Loss")
# Scores (n, classes) against as many zeros and ones.
ONE_HOT_TARGETS = ("BCEWithLogitsLoss", "MultiLabelSoftMarginLoss")
# Losses whose scores have to be logarithms of probabilities.
OF_LOG_PROBABILITIES = ("NLLLoss",)
# The value of a loss's option `weight` that makes rare classes count as much as frequent ones.
BALANCED = "balanced"


def build(name, options, classes, labels=None):
    """A function of scores (n, outputs) float32 and targets (n,), giving the mean loss.

    Args:
        options: of torch's loss. `weight: balanced` weighs each sample by (number of samples) /
            (number of classes * number of samples of its class), as scikit-learn does.
        classes: number of classes, with int64 targets; None: the targets are numbers, float32.
        labels: of the training samples, (n,) int64; used for `weight: balanced` only.
    """
    make = registry.losses()[name].load()
    if classes is None:
        loss = make(**options)
        return lambda scores, targets: loss(scores.squeeze(1), targets)
    if options.get("weight") == BALANCED:
        return _balanced(make, options, classes, labels)
    loss = make(**options)
    if name in CLASS_TARGETS:
        return loss
    return lambda scores, targets: loss(scores, F.one_hot(targets, classes).to(scores.dtype))


def of_run(run, dataset, samples):
    """The loss of a Run.

    Args:
        dataset: the opened storage.Dataset.
        samples: positions of its training samples in it, (n,) int64.
    """
    classes = None if dataset.classes is None else len(dataset.classes)
    labels = dataset.targets[samples] if run.loss.options.get("weight") == BALANCED else None
    return build(run.loss.name, run.loss.options, classes, labels)


def class_weights(labels, classes):
    """The weights of classes that make each count as much, (classes,) float32: see build().

    Args:
        labels: of the training samples, (n,) int64.
    """
    counts = torch.bincount(torch.from_numpy(labels), minlength=classes)
    return len(labels) / (classes * counts.clamp(min=1))


def _balanced(make, options, classes, labels):
    weight = class_weights(labels, classes)
    # torch divides by the sum of the weights in a batch, which differs between the workers' parts.
    loss = make(**options | {"weight": weight}, reduction="none")
    return lambda scores, targets: loss(scores, targets).mean()
