"""How a run of several processes fails."""


class RankFailedError(Exception):
    """A process of a run raised, was killed or hangs; the message names its rank and says how."""


class DivergedError(Exception):
    """The loss of a training is no longer a finite number.

    Attributes:
        epoch, step: counted from 1; step is None where only the finished epoch shows it.
        lr: learning rate of that step; without one, at the beginning of the epoch.
    """

    def __init__(self, epoch, step, lr):
        super().__init__(epoch, step, lr)
        self.epoch, self.step, self.lr = epoch, step, lr

    def __str__(self):
        step = "" if self.step is None else f", step {self.step}"
        return f"the loss is not finite in epoch {self.epoch}{step}, learning rate {self.lr:.3g}"
