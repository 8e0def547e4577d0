"""Losses by name or import path, as a run's task has them."""

import inspect
from functools import partial

import torch

from allcores_study.config import registry

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
    elif ":" in loss.name:
        make = partial(_without_state, make)
    return task.loss(loss.name, make, loss.options, targets)


def _without_state(make, **options):
    """A loss of the user's.

    Raises:
        ValueError: it has parameters or buffers, which nothing trains or keeps in checkpoints.
    """
    made = make(**options)
    if isinstance(made, torch.nn.Module) and made.state_dict():
        raise ValueError(
            f"it keeps {', '.join(made.state_dict())}, which is neither trained nor restored when "
            "a run goes on; expected a loss without parameters and buffers"
        )
    return made


def of_run(run, dataset, samples):
    """The loss of a Run.

    Args:
        dataset: the opened storage.Dataset.
        samples: positions of its training samples in it, (n,) int64.
    """
    return build(run.loss, dataset.task, dataset.targets[samples])
