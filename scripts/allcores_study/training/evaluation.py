"""Score saved weights on the held-out samples: exactly, without padding or augmentation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from allcores_study.data import targets as targets_of
from allcores_study.data.batches import Batches
from allcores_study.training import losses, models

if TYPE_CHECKING:
    from allcores_study.config.run import Run
    from allcores_study.data.scaling import Scaling
    from allcores_study.data.storage import Dataset

BATCH_SIZE = 256


class DivergedError(Exception):
    """The training loss is no longer a finite number.

    Attributes:
        epoch, step: counted from 1; step is None where only the finished epoch shows it.
        lr: learning rate of that step; without one, at the beginning of the epoch.
    """

    def __init__(self, epoch: int, step: int | None, lr: float) -> None:
        super().__init__(epoch, step, lr)
        self.epoch, self.step, self.lr = epoch, step, lr

    def __str__(self) -> str:
        step = "" if self.step is None else f", step {self.step}"
        return f"the loss is not finite in epoch {self.epoch}{step}, learning rate {self.lr:.3g}"


def diverged_at_last(
    measures: dict[str, Any], epochs: list[dict[str, Any]]
) -> DivergedError | None:
    """Return a DivergedError if the loss is not finite after the last update, else None.

    Only scoring shows that.
    """
    if math.isfinite(measures["loss"]):
        return None
    return DivergedError(len(epochs), None, epochs[-1]["lr"])


@torch.inference_mode()
def evaluate(
    run: Run,
    dataset: Dataset,
    scaling: Scaling,
    samples: np.ndarray,
    held_out: np.ndarray,
    weights: dict[str, torch.Tensor],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Score weights on the held-out samples.

    Args:
        scaling: that of the training samples.
        samples, held_out: positions of the training samples and the held-out ones, (n,) int64 each.
        weights: a state_dict of the run's model.

    Returns:
        ({"loss": mean over the samples, and what the task's measured() returns},
        the columns of the task's predictions())
    """
    model = models.build(run, dataset.shape, dataset.task.outputs, dataset.vocabulary_size)
    model.load_state_dict(weights)
    model.eval()
    criterion = losses.of_run(run, dataset, samples)
    source = Batches(dataset.inputs, scaling.mean, scaling.std)
    targets = targets_of.of(dataset, scaling, source)
    task = dataset.task.given_by(model)
    loss, batches = 0.0, []
    for part, scores in scores_of(model, source, held_out):
        loss += float(criterion(task.scores(scores), targets.plain(part))) * len(part)
        batches.append(task.kept(scores))
    columns = task.predictions(torch.cat(batches).numpy(), scaling)
    measures = task.measured(dataset.targets[held_out], columns["predicted"])
    return measures | {"loss": loss / len(held_out)}, columns


def shipped(epochs: list[dict[str, Any]]) -> int:
    """Return the epoch, counted from 0, whose weights a run ships.

    That is the best on the validation part, or the last without one. A loss of NaN is worse than
    any number.

    Args:
        epochs: one record per epoch.
    """
    if "validation_loss" not in epochs[-1]:
        return len(epochs) - 1
    values = [epoch["validation_loss"] for epoch in epochs]
    return min(range(len(epochs)), key=lambda i: (math.isnan(values[i]), values[i]))


def is_over(run: Run, epochs: list[dict[str, Any]]) -> bool:
    """Return whether a Run needs no further epoch."""
    if not epochs:
        return False
    waited = len(epochs) - 1 - shipped(epochs)
    return len(epochs) == run.epochs or waited >= (run.patience or math.inf)


def scores_of(
    model: torch.nn.Module, source: Batches, samples: np.ndarray
) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
    """Yield (samples, the model's scores of them), batch by batch.

    Args:
        model: in evaluation mode.
        samples: positions in the source, (n,) int64.
    """
    is_network = not getattr(model, "gives_probabilities", False)
    for start in range(0, len(samples), BATCH_SIZE):
        part = samples[start : start + BATCH_SIZE]
        scores = model(source.plain(part))
        yield part, scores.float() if is_network else scores
