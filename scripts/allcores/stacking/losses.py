"""The mean loss of each network of a stack, over the samples of its batch."""

import torch
import torch.nn.functional as F

from allcores.study import registry
from allcores.training.losses import BALANCED, NUMBER_TARGETS, class_weights

CROSS_ENTROPY = "CrossEntropyLoss"


def problem(run, classes):
    """Why the loss of a Run cannot be stacked, in words; None: it can be.

    Args:
        classes: names of the classes; None: the targets are numbers.
    """
    options = run.loss.options.keys()
    if classes is not None and (run.loss.name != CROSS_ENTROPY or options - {"weight"}):
        return f"its loss is {run.loss.name}" + "".join(f" with {key}" for key in sorted(options))
    reductions = sorted(options & {"reduction", "reduce", "size_average"})
    return f"its loss has the option {reductions[0]}" if reductions else None


def of_tasks(tasks):
    """A function of scores (K, B, outputs) float32, targets (K, B) and which of the B are samples,
    (K, B) bool, that gives the networks' mean losses, (K,) float32.

    Args:
        tasks: training.task.Task of each network, all of classes or all of numbers.
    """
    loss = tasks[0].run.loss
    if loss.name in NUMBER_TARGETS and tasks[0].dataset.classes is None:
        each = registry.losses()[loss.name].load()(**loss.options, reduction="none")
        return lambda scores, targets, present: _mean(each(scores.squeeze(2), targets), present)
    weights = None
    if loss.options.get("weight") == BALANCED:
        targets = [task.dataset.targets[task.samples] for task in tasks]
        classes = tasks[0].dataset.outputs
        weights = torch.stack([class_weights(labels, classes) for labels in targets])

    def cross_entropy(scores, targets, present):
        shares = F.log_softmax(scores, dim=2)
        losses = -shares.gather(2, targets.unsqueeze(2)).squeeze(2)
        return _mean(losses if weights is None else losses * weights.gather(1, targets), present)

    return cross_entropy


def _mean(values, present):
    return torch.where(present, values, 0.0).sum(dim=1) / present.sum(dim=1).clamp(min=1)
