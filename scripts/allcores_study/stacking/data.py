"""What the loop of stacked networks reads: samples, order, learning rates, averages."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from allcores.loop.sharding import ORDER
from allcores_study.config.run import Entry
from allcores_study.data.batches import Batches
from allcores_study.training.schedules import Schedule

if TYPE_CHECKING:
    from allcores_study.config.run import Run
    from allcores_study.stacking.networks import Stack
    from allcores_study.training.prepared import PreparedRun


class StackedSamples:
    """The inputs and targets of the runs of a stack.

    Args:
        prepared_runs: those of K networks, all of one dataset.
    """

    def __init__(self, prepared_runs: Sequence[PreparedRun]) -> None:
        self.inputs = np.asarray(prepared_runs[0].dataset.inputs)  # faster than numpy.memmap
        sources = [
            Batches(self.inputs, prepared.scaling.mean, prepared.scaling.std)
            for prepared in prepared_runs
        ]
        self.mean, self.scale = (
            torch.stack([getattr(source, name) for source in sources]).unsqueeze(1)
            for name in ("mean", "scale")
        )
        self.may_be_missing = sources[0].may_be_missing
        targets = [
            torch.from_numpy(
                prepared.dataset.task.scaled(prepared.dataset.targets, prepared.scaling)
            )
            for prepared in prepared_runs
        ]
        self.targets = torch.stack(targets)

    def of(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs (K, B, ...) float32 and targets for positions (K, B) in the dataset.

        Targets are (K, B), or (K, B, T) if there are several.
        """
        # As batches.Batches does for a single network.
        inputs = torch.from_numpy(self.inputs[positions.numpy()]).to(self.mean.dtype, copy=True)
        inputs = inputs.sub_(self.mean).mul_(self.scale).float()
        if self.may_be_missing:
            inputs.nan_to_num_(nan=0.0)
        if self.targets.dim() == 2:  # in a quarter of the time
            return inputs, self.targets.gather(1, positions)
        return inputs, self.targets[torch.arange(len(positions)).unsqueeze(1), positions]


def orders(
    prepared_runs: Sequence[PreparedRun], epochs: Sequence[int | None], steps: int, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the samples of each network at each step of its next epoch, as sharding.shards() does.

    Args:
        epochs: number of the epoch of each of K prepared_runs, from 0; None: it takes no part.
        steps: the most steps of an epoch.
        width: places for the samples of a batch.

    Returns:
        (positions in the dataset, (K, steps, width) int64; which of the places hold samples, bool)
    """
    # Places without a sample compute one of the network's own: one that it must not see, or that is
    # not finite, would matter even where its loss does not count.
    positions = np.stack(
        [np.full((steps, width), prepared.samples[0], np.int64) for prepared in prepared_runs]
    )
    present = np.zeros((len(prepared_runs), steps, width), bool)
    for k, (prepared, epoch) in enumerate(zip(prepared_runs, epochs, strict=True)):
        if epoch is None:
            continue
        size, count = prepared.run.batch_size, len(prepared.samples)
        assert size is not None
        order = np.random.default_rng([prepared.run.seed, ORDER, epoch]).permutation(
            prepared.samples
        )
        present[k, :, :size] = np.arange(steps * size).reshape(steps, size) < count
        positions[k][present[k]] = order
    return torch.from_numpy(positions), torch.from_numpy(present)


class Rates:
    """The learning rate of the next batch of a run, as in schedules.Schedule.

    Rates that are known before the training are computed once for all networks.

    Args:
        steps: number of batches in the whole training.
    """

    def __init__(self, run: Run, steps: int) -> None:
        assert run.optimizer is not None
        self.schedule = Schedule(run.schedule, run.optimizer.options["lr"], steps)
        self.step, self.known = 0, None
        if not self.schedule.per_epoch:
            self.known = _rates(run.schedule.to_json(), run.optimizer.options["lr"], steps)

    @property
    def lr(self) -> float:
        return self.schedule.lr if self.known is None else self.known[self.step]

    def end_batch(self) -> None:
        self.step += 1

    def end_epoch(self, loss: float) -> None:
        self.schedule.end_epoch(loss)


@functools.cache
def _rates(entry: str, lr: float, steps: int) -> list[float]:
    schedule = Schedule(Entry.from_json(entry), lr, steps)
    rates = []
    for _ in range(steps):
        rates.append(schedule.lr)
        schedule.end_batch()
    return [*rates, schedule.lr]


class Averages:
    """The averages of the weights of stacked networks, as in optimizers.WeightAverage."""

    def __init__(self, runs: Sequence[Run], stack: Stack) -> None:
        self.stack, self.runs, self.has_begun = stack, runs, [False] * len(runs)
        if any(run.ema for run in runs):
            self.weights = stack.weights.clone()

    @torch.no_grad()
    def take(self, rows: Iterable[int]) -> None:
        """Add the weights of these networks after a step to their averages."""
        for k in rows:
            if self.runs[k].ema:
                rate = 1 - self.runs[k].ema if self.has_begun[k] else 1.0  # type: ignore[operator]
                self.weights[k].lerp_(self.stack.weights[k], rate)
                self.has_begun[k] = True

    def shipped(self, k: int) -> dict[str, torch.Tensor]:
        """Return the state_dict that a network ships now: of its average, if there is one."""
        return self.stack.state_dict(k, self.weights if self.has_begun[k] else self.stack.weights)
