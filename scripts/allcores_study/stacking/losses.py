"""The mean loss of each network of a stack, over the samples of its batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from allcores_study.config import registry

if TYPE_CHECKING:
    import numpy as np

    from allcores_study.config.run import Run
    from allcores_study.data.storage import Dataset
    from allcores_study.training.prepared import PreparedRun


def problem(run: Run, dataset: Dataset) -> str | None:
    """Return why the loss of a Run on a storage.Dataset cannot be stacked; None: it can be."""
    options = run.loss.options.keys()
    reductions = sorted(options & {"reduction", "reduce", "size_average"})
    if reductions:
        return f"its loss has the option {reductions[0]}"
    if _of_each(run, dataset.task, [dataset.targets]) is None:
        return f"its loss is {run.loss.name}" + "".join(f" with {key}" for key in sorted(options))
    return None


def of_runs(
    prepared_runs: Sequence[PreparedRun],
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the networks' mean losses, (K,) float32, as a function.

    It takes scores (K, B, outputs), targets of (K, B) samples and which of the B are samples, (K,
    B) bool.

    Args:
        prepared_runs: those of all networks, of one task.
    """
    targets = [prepared.dataset.targets[prepared.samples] for prepared in prepared_runs]
    first = prepared_runs[0]
    each = _of_each(first.run, first.dataset.task, targets)
    assert each is not None
    return lambda scores, targets, present: _mean(each(scores, targets), present)


def _of_each(
    run: Run, task: Any, targets: list[np.ndarray]
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None:
    if ":" in run.loss.name:  # the user's own, which returns a mean
        return None
    make = registry.loss(run.loss.name).load()
    return task.loss_of_each(run.loss.name, make, run.loss.options, targets)


def _mean(values: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
    return torch.where(present, values, 0.0).sum(dim=1) / present.sum(dim=1).clamp(min=1)
