"""The training loop of stacked networks: training/loop.py with K networks per step, not one.

Read the two side by side. What is one number there is one per network here: learning rate, loss,
samples of the batch. A network keeps its weights while the others continue if its training is over,
or if it has no batch because its fold is smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from allcores.loop.sharding import count_batches
from allcores.parallel.clock import Clock
from allcores_study.stacking import losses as stacked_losses
from allcores_study.stacking.data import Averages, Rates, StackedSamples, orders
from allcores_study.stacking.networks import ROWS, Stack, padded
from allcores_study.stacking.optimizers import StackedOptimizer
from allcores_study.training.evaluation import DivergedError, is_over

if TYPE_CHECKING:
    from allcores_study.training.prepared import PreparedRun


def train(
    prepared_runs: Sequence[PreparedRun],
    models: Sequence[torch.nn.Module],
    after_epoch: Callable[[int, list[dict[str, Any]], Callable[[], dict[str, torch.Tensor]]], None],
) -> list[tuple[list[dict[str, Any]], DivergedError | None]]:
    """Train the networks of a stack.

    Args:
        prepared_runs: those of all networks, of one dataset, with the same batch size, loss and
            optimizer.
        models: the networks, of one shape, with their initial weights.
        after_epoch: function of the number of a network, its epochs so far and a function that
            returns the weights that it ships, a state_dict; it may add to the record of the last
            epoch.

    Returns:
        [(the epochs of a network as in loop.train(), the DivergedError that ended it or None), ...]
    """
    runs, stack = [prepared.run for prepared in prepared_runs], Stack(models)
    samples, criterion = StackedSamples(prepared_runs), stacked_losses.of_runs(prepared_runs)
    optimizer, clock = StackedOptimizer(runs, stack), Clock()
    batches = [
        count_batches(len(prepared.samples), prepared.run.batch_size)  # type: ignore[arg-type]
        for prepared in prepared_runs
    ]
    totals = [run.epochs * count for run, count in zip(runs, batches, strict=True)]
    rates = [Rates(run, total) for run, total in zip(runs, totals, strict=True)]
    averages = Averages(runs, stack)
    epochs: list[list[dict[str, Any]]] = [[] for _ in runs]
    diverged: list[DivergedError | None] = [None for _ in runs]

    def is_going_on(k: int) -> bool:
        return diverged[k] is None and not is_over(runs[k], epochs[k])

    while going := [k for k in range(len(runs)) if is_going_on(k)]:
        epoch = len(epochs[going[0]])
        numbers = [epoch if k in going else None for k in range(len(runs))]
        order, present = orders(
            prepared_runs,
            numbers,
            max(batches),
            padded(runs[0].batch_size, ROWS),  # type: ignore[arg-type]
        )
        last_rates = [rate.lr for rate in rates]
        total_losses = torch.zeros(len(runs), dtype=torch.float64)
        for step in range(max(batches)):
            clock.enter("data")
            is_sample = present[:, step]
            inputs, target = samples.of(order[:, step])
            lr = torch.tensor([[rate.lr] for rate in rates], dtype=torch.float64)
            clock.enter("compute")
            losses = criterion(stack.scores(inputs), target, is_sample)
            stack.differentiate(losses.nan_to_num(0.0, 0.0, 0.0).sum())
            clock.enter("update")
            for k in (~losses.isfinite()).nonzero().flatten().tolist():
                diverged[k] = DivergedError(epoch + 1, step + 1, rates[k].lr)
                present[k] = False
            counts = present[:, step].sum(dim=1)
            rows = counts.nonzero().flatten()
            optimizer.step(lr, rows if len(rows) < len(runs) else slice(None))
            averages.take(rows.tolist())
            for k in rows.tolist():
                last_rates[k] = rates[k].lr
                rates[k].end_batch()
            total_losses += torch.where(counts > 0, losses.detach(), 0.0) * counts
        clock.stop()
        # Equal shares of those that are still trained.
        phases = {phase: seconds / len(going) for phase, seconds in clock.take().items()}
        for k in going:
            if diverged[k] is None:
                loss = float(total_losses[k]) / len(prepared_runs[k].samples)
                rates[k].end_epoch(loss)
                epochs[k].append({"loss": loss, "lr": last_rates[k], "phases": dict(phases)})
                after_epoch(k, epochs[k], partial(averages.shipped, k))
    return list(zip(epochs, diverged, strict=True))
