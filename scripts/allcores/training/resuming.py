"""What a checkpoint holds of a training, and how the training goes on from it, bit for bit."""

import torch


class Saver:
    """Saves after an epoch or in the middle of one; goes on in the middle of one.

    Args:
        checkpoints: Checkpoints.
        strategy, schedule, progress: of this worker.
        world: world.World.
    """

    def __init__(self, checkpoints, strategy, schedule, progress, world):
        self.checkpoints, self.strategy, self.schedule = checkpoints, strategy, schedule
        self.progress, self.world = progress, world
        self.sent = 0

    def save(self, epochs, middle=None):
        """Write a checkpoint; called on rank 0 only.

        Args:
            epochs: the record of each whole epoch.
            middle: what there is beyond, if anything.
        """
        self.checkpoints.save(
            {
                "strategy": self.strategy.state(),
                "schedule": self.schedule.state(),
                "epochs": epochs,
                "middle": middle,
                "start_up_seconds": self.progress.start_up,
                "threads": torch.get_num_threads(),
            }
        )
        self.world.pause.saved()

    def sent_in_epoch(self):
        """Bytes that were sent between nodes since the last epoch, in this session."""
        before, self.sent = self.sent, self.world.sent_between_nodes()
        return self.sent - before

    def save_in_epoch(self, epochs, step, lr, total_loss):
        """Write a checkpoint after so many steps of an epoch; all workers call it after the same.

        Args:
            lr: learning rate at the beginning of the epoch.
            total_loss: this worker's part of the epoch's loss so far, (1,).
        """
        self.world.clock.stop()
        own = {
            "strategy": self.strategy.state_of_worker(),
            "random": torch.get_rng_state(),
            "total_loss": total_loss,
            "seconds": dict(self.world.clock.seconds),
        }
        workers = self.world.gather(own)
        if self.world.rank == 0:
            self.save(epochs, {"step": step, "lr": lr, "workers": workers})
        self.world.barrier()
        self.world.clock.enter("data")

    def go_on(self, middle):
        """Be as this worker was in the middle of an epoch; returns step, lr and total_loss."""
        own = middle["workers"][self.world.rank]
        self.strategy.restore_worker(own["strategy"])
        torch.set_rng_state(own["random"])
        self.world.clock.seconds.update(own["seconds"])
        return middle["step"], middle["lr"], own["total_loss"]
