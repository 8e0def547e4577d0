"""torch's losses by name, as a run's task has them."""

import inspect
from functools import partial

from allcores.study import registry

# Losses whose scores have to be logarithms of probabilities.
OF_LOG_PROBABILITIES = ("NLLLoss",)


def build(loss, task, targets=None):
    """A function of scores (n, outputs) float32 and scaled targets, giving the mean loss.

    Args:
        loss: the Choice of a Run.
        task: tasks.base.Task.
        targets: of the training samples, as stored.
    """
    make = registry.loss(loss.name).load()
    if not inspect.isclass(make):  # a function of the user's: of scores, targets and options
        make = partial(partial, make)
    return task.loss(loss.name, make, loss.options, targets)


def of_run(run, dataset, samples):
    """The loss of a Run.

    Args:
        dataset: the opened storage.Dataset.
        samples: positions of its training samples in it, (n,) int64.
    """
    return build(run.loss, dataset.task, dataset.targets[samples])
