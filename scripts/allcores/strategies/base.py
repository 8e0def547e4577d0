"""The contract: a strategy turns this worker's gradient into this worker's next weights."""


class Strategy:
    """What the training loop may ask of any way of sharing the work.

    Constructor: Strategy(model, optimizer, world, *, options...), called on every rank with equal
    weights. The loss of each worker is weighted by its share of the batch, so that the *average*
    of the workers' gradients is the gradient of the global batch.

    Attributes:
        model: what the loop calls forward on.
        one_worker: True for a strategy that never uses a second worker.
    """

    one_worker = False

    def __init__(self, model, optimizer, world):
        self.model = model
        self.module = model
        self.optimizer = optimizer
        self.world = world

    def step(self, lr):
        """Gradient in, next weights out: update with learning rate lr and clear the gradient."""
        raise NotImplementedError

    def settle(self):
        """Make my copy the weights that this run would ship, the same on every worker.

        Batch-norm statistics are averaged over the workers: each has seen its own shards only.
        """
        self.world.average(buffer for buffer in self.module.buffers() if buffer.is_floating_point())

    def state(self):
        """All that a resumed run needs, as tensors and plain values."""
        return {"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state):
        """Take up what state() gave."""
        self.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def serve(self):
        """The whole life of a server process; a strategy without servers has none."""
        raise NotImplementedError

    def close(self):
        """Tell the servers that I am done."""

    def update(self, lr):
        """The local update that most strategies end their step with."""
        self.world.clock.enter("update")
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad()
