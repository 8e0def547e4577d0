"""What a checkpoint contains of a training, and how the training resumes from it, bit for bit.

It contains the state of the shared model (weights and optimizer), the schedule, the average of the
weights and the epochs so far. In the middle of an epoch, it also contains the step, and each
worker's buffers, random numbers, loss so far and clock. checkpoints.py decides whether a checkpoint
may be used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from allcores_study.data.batches import random_state, restore_random_state
from allcores_study.training.evaluation import is_over

if TYPE_CHECKING:
    from torch import nn

    from allcores.loop.shared_model import SharedModel
    from allcores.parallel.world import World
    from allcores_study.training.checkpoints import Checkpoints
    from allcores_study.training.optimizers import WeightAverage
    from allcores_study.training.progress import Progress
    from allcores_study.training.schedules import Schedule

# Least seconds between checkpoints after epochs, and the most of a run's time that these take.
INTERVAL, SHARE = 1.0, 0.02


class Saver:
    """Saver of checkpoints: after an epoch when one is due, in the middle of one on request.

    Args:
        schedule, average, progress: those of this worker.
        batches: number of batches in an epoch.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        shared: SharedModel,
        schedule: Schedule,
        average: WeightAverage,
        progress: Progress,
        batches: int,
        world: World,
    ) -> None:
        self.checkpoints, self.shared, self.schedule = checkpoints, shared, schedule
        self.strategy = shared.strategy
        self.average, self.progress = average, progress
        self.batches, self.world = batches, world
        self.middle: dict[str, Any] | None = None
        self.pauses, self.sent, self.saving = False, 0, 0.0

    def resume(self, checkpoint: dict[str, Any] | None) -> list[dict[str, Any]]:
        """Restore all except the shared model from a checkpoint; return the epochs so far."""
        if not checkpoint:
            return []
        self.schedule.restore(checkpoint["schedule"])
        self.average.restore(checkpoint["average"])
        self.middle = checkpoint["middle"]
        done = self.middle["step"] if self.middle else 0
        self.progress.resumed(len(checkpoint["epochs"]), done, self.batches)
        return checkpoint["epochs"]

    def begin_epoch(self) -> tuple[int, float, float]:
        """Return (steps already done, learning rate at the beginning, this worker's loss so far).

        After a pause in the middle of an epoch, these are restored, as are random numbers and the
        clock.
        """
        if not self.middle:
            return 0, self.schedule.lr, 0.0
        middle, self.middle = self.middle, None
        state = middle["workers"][self.world.rank]
        self.strategy.restore_worker(state["strategy"])
        restore_random_state(state["random"])
        self.world.clock.seconds.update(state["seconds"])
        self.sent = -middle["sent"]
        return middle["step"], middle["lr"], state["total_loss"]

    def after_step(
        self, epochs: list[dict[str, Any]], step: int, lr: float, total_loss: float
    ) -> bool:
        """Save if a checkpoint is due; return whether to stop.

        Args:
            epochs: one record per completed epoch.
            step: number of steps of the current epoch that are done.
            lr, total_loss: as in begin_epoch().
        """
        rank = self.world.rank_on_node
        self.pauses = self.world.pause.due(rank, len(epochs) * self.batches + step)
        if not self.pauses or step == self.batches:  # the end of the epoch also saves
            return False
        self.world.clock.stop()
        state = {
            "strategy": self.strategy.state_of_worker(),
            "random": random_state(),
            "total_loss": total_loss,
            "seconds": dict(self.world.clock.seconds),
        }
        middle = {"step": step, "lr": lr, "workers": self.world.gather(state), "sent": self._sent()}
        if self.world.rank == 0:
            self._save(epochs, middle)
        self.world.barrier()
        self.world.clock.enter("data")
        return self.world.pause.over(rank)

    def after_epoch(
        self,
        epochs: list[dict[str, Any]],
        model: nn.Module,
        validate: Callable[[dict[str, torch.Tensor]], tuple[dict[str, Any], Any]] | None,
    ) -> bool:
        """Save if a checkpoint is due; return whether to stop. The clock is stopped.

        Args:
            epochs: one record per epoch. What rank 0 adds to the last one reaches the other workers
                only if there is something to validate on.
            validate: function of weights that returns ({"loss", ...}, _) on the validation part;
                None: there is no such part.
        """
        if self.world.nodes > 1:
            epochs[-1]["sent_between_nodes"] = sent = self._sent()
            self.sent += sent
        if self.world.rank == 0:
            weights = self.average.weights(model)
            epochs[-1] |= self.strategy.record()
            if validate:
                epochs[-1]["validation_loss"] = validate(weights)[0]["loss"]
            self.checkpoints.save_weights(epochs, weights)
            if self._is_due(epochs):
                self._save(epochs)
            else:
                self.checkpoints.note(epochs[-1])
            self.progress.epoch(epochs)
        if validate:
            epochs[-1] = self.world.broadcast(epochs[-1])
        self.world.barrier()  # rank 0 may still read shared weights or query servers
        return self.pauses and self.world.pause.over(self.world.rank_on_node)

    def _sent(self) -> int:
        """Return how many bytes were sent from node to node in this epoch."""
        return self.world.sent_between_nodes() - self.sent if self.world.nodes > 1 else 0

    def _is_due(self, epochs: list[dict[str, Any]]) -> bool:
        """Return whether to save after this epoch, so that short ones are not spent on saving."""
        is_last = self.pauses or is_over(self.progress.run, epochs)
        return is_last or self.world.pause.age > max(INTERVAL, self.saving / SHARE)

    def _save(self, epochs: list[dict[str, Any]], middle: dict[str, Any] | None = None) -> None:
        began = time.perf_counter()
        self.checkpoints.save(
            {
                "shared": self.shared.state(),
                "schedule": self.schedule.state(),
                "average": self.average.state(),
                "epochs": epochs,
                "middle": middle,
                "start_up_seconds": self.progress.start_up,
                "threads": torch.get_num_threads(),
                "parameters": sum(
                    weights.numel()
                    for weights in self.strategy.module.parameters()
                    if weights.requires_grad
                ),
            }
        )
        self.world.pause.saved()
        self.saving = time.perf_counter() - began
