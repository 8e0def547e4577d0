"""Losses by name or import path, adapted to a run's task."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from allcores_study.config import registry

if TYPE_CHECKING:
    import numpy as np

    from allcores_study.config.run import Entry, Run
    from allcores_study.data.storage import Dataset
    from allcores_study.tasks.base import Task

# Losses that take logarithms of probabilities as scores.
OF_LOG_PROBABILITIES = ("NLLLoss",)


def build(
    loss: Entry, task: Task, targets: np.ndarray | None = None
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the mean loss as a function of scores (n, outputs) float32 and scaled targets.

    Args:
        targets: of the training samples, as stored.
    """
    make = registry.loss(loss.name).load()
    if not inspect.isclass(make):  # the user's own function of scores, targets and options
        make = partial(partial, make)
    elif ":" in loss.name:
        make = partial(_without_state, make)
    return task.loss(loss.name, make, loss.options, targets)  # type: ignore[arg-type]


def _without_state(make: Callable[..., Any], **options: Any) -> Any:
    """Return a loss of the user's.

    Raises:
        ValueError: it has parameters or buffers, which nothing trains or keeps in checkpoints.
    """
    made = make(**options)
    if isinstance(made, torch.nn.Module) and made.state_dict():
        raise ValueError(
            f"it keeps {', '.join(made.state_dict())}, which is neither trained nor restored when "
            "a run resumes; expected a loss without parameters and buffers"
        )
    return made


def of_run(
    run: Run, dataset: Dataset, samples: np.ndarray
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the loss of a Run.

    Args:
        samples: positions of the training samples, (n,) int64.
    """
    return build(run.loss, dataset.task, dataset.targets[samples])
