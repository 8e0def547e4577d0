"""The contract: a strategy turns this worker's gradient into this worker's next weights.

The training loop calls forward and backward, then step(); see training/loop.py. What a strategy
may use of `world` (parallel.world.World):

    world.rank, .workers, .servers     this process, and how many there are; servers come last
    world.size, .is_server             all processes, and whether this one is a server
    world.nodes, .rank_on_node, .workers_on_node         where it is, if there are several machines
    world.all_reduce(tensor)           sum over the workers, in place
    world.average(tensors)             average over the workers, in place
    world.broadcast(value)             what rank 0 has, on every worker
    world.send(tensor, rank), .receive(tensor, rank)     begin; wait() on what they return
    world.send_value, receive_value, receive_from_any    for servers; see _servers.py
    world.barrier(), .barrier_on_node()                  wait until every worker is here
    world.shared.zeros(shape, dtype)   a tensor that all processes of the run on this node see
    world.shared.lock()                a lock that one of them at a time can hold
    world.begin_all_reduce_across_nodes(tensor)          over workers of one rank_on_node; wait()
    world.clock.enter("communicate")   from here on, time counts as that phase, until the next one;
                                       the loop itself enters "data", "compute" and "wait"

parallel.flat.Flat makes one vector of all weights, and one of all gradients.
"""

from __future__ import annotations

import contextlib
import itertools
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _NormBase

if TYPE_CHECKING:
    from torch import Tensor, nn

    from allcores.parallel.flat import Flat
    from allcores.parallel.world import World


class Strategy:
    """The base of strategies: what the training loop may call on any of them.

    Constructor: Strategy(model, make_optimizer, world, *, options...), called on every rank with
    equal weights. make_optimizer(parameters) returns the optimizer that the config asks for, which
    clips gradients if the config does; see parallel/optimizers.py for processes that have only a
    part of the gradient. The loss of each worker is weighted by its share of the batch, so that the
    *average* of the workers' gradients is the gradient of the global batch.

    All asynchronous strategies scale the learning rate: an update for a part of a global batch uses
    that part of the learning rate. With W workers, each worker's gradient is applied with lr / W,
    so that a round of W updates moves the weights as far as one update of serial training with lr.

    Attributes:
        model: what the loop calls forward on.
        trained: the module whose weights step() updates.
        flat: the Flat whose parts the optimizer updates; None: it updates the parameters.
        one_node: True if its workers have to be on one machine.
        one_worker: True if it never uses a second worker.
        equals_serial: a promise that the tests check. "with one worker": it ends with the weights
            of serial training, bit for bit. "always": with several workers as well, up to rounding,
            for models without batch norm and dropout whose weights all get a gradient in every
            step. None: nothing is promised.
        element_wise: True if it updates the model as one vector, which suits optimizers that treat
            every element alone, and weights of one dtype.
        reference: True if it does not compute on the cores. It is then studied once, whatever the
            number of cores.
        is_plain: True if it applies the gradient as it is, so that networks may be stacked.
        asynchronous: True if its workers do not wait for each other. Its record() then contains the
            staleness of the updates. By default, all others end with the same bits every time,
            resumed or not.
        look: its colour and marker in figures; None: free ones of the palette.

    Options are the keyword arguments of __init__, with defaults. Names, options, the
    attributes above and ALLOWED (what an option may be: a tuple of values, or the least number) are
    read from the strategy's own file without importing it; they are not inherited.
    """

    flat: Flat | None = None
    look: tuple[str, str] | None = None
    one_node = False
    one_worker = False
    equals_serial: str | None = None
    element_wise = False
    reference = False
    is_plain = False
    asynchronous = False

    def __init__(self, model: nn.Module, optimizer: Any, world: World) -> None:
        self.model = model
        self.module = self.trained = model
        self.optimizer = optimizer
        self.world = world

    @classmethod
    def refusal(cls, model: nn.Module, **options: Any) -> str | None:
        """Return why this strategy cannot train a model; None: no reason is known.

        Args:
            model: before or after a backward().
            options: of the strategy.
        """
        parameters = model.named_parameters()
        trained = {name: value for name, value in parameters if value.requires_grad}
        dtypes = {str(parameter.dtype).removeprefix("torch.") for parameter in trained.values()}
        if cls.element_wise and len(dtypes) != 1:
            found = " and ".join(sorted(dtypes)) or "none"
            return f"makes one vector of all trainable weights, which are {found}"
        layers = [name for name, part in model.named_modules() if getattr(part, "sparse", False)]
        grads = {name: each.grad for name, each in trained.items() if each.grad is not None}
        sparse = layers + [name for name, grad in grads.items() if grad.is_sparse]
        if sparse and not cls.one_worker:
            found = sparse[0] or type(model).__name__
            return f"exchanges dense gradients, and those of {found} are sparse"
        return None

    @classmethod
    def missing_gradient(cls, model: nn.Module, **options: Any) -> str | None:
        """Return why it cannot train a model whose backward() has just left these gradients."""
        trained = ((name, part) for name, part in model.named_parameters() if part.requires_grad)
        missing = [name for name, part in trained if part.grad is None]
        option = cls.option_for_missing_gradients(**options)
        if missing and option:
            return f"waits for the gradient of every weight, and {missing[0]} gets none; {option}"
        return None

    @classmethod
    def option_for_missing_gradients(cls, **options: Any) -> str | None:
        """Return what to do about weights without a gradient; None: their gradient counts as zero.

        Momentum and weight decay then still change such a weight, which serial training would not.
        """
        return None

    def step(self, lr: float) -> None:
        """Update the weights with learning rate lr, and clear the gradient.

        By default, the gradient that backward() has left is applied.
        """
        self.update(lr)
        self.clear()

    def accumulating(self) -> AbstractContextManager[Any]:
        """Return a context in which backward() only adds to the gradient of a later step()."""
        return contextlib.nullcontext()

    def synchronize(self) -> None:
        """Make this worker's weights the final ones of an epoch, equal on all workers.

        The statistics of torch's normalization layers are averaged over the workers: each has seen
        its own shards only. Other buffers become those of rank 0: a sum of masks may overflow.
        Those that are not saved, such as caches, may differ, also in shape.
        """
        averaged = {
            buffer
            for part in self.module.modules()
            if isinstance(part, _NormBase)
            for buffer in part.buffers(recurse=False)
            if buffer.is_floating_point()
        }
        saved = {
            buffer: None  # in order
            for part in self.module.modules()
            for name, buffer in part.named_buffers(recurse=False)
            if name not in part._non_persistent_buffers_set
        }
        buffers = list(saved)
        self.world.average(buffer for buffer in buffers if buffer in averaged)
        if others := [buffer for buffer in buffers if buffer not in averaged]:
            for buffer, first in zip(others, self.world.broadcast(others), strict=True):
                buffer.copy_(first)

    def record(self) -> dict[str, Any]:
        """Return further plain values to record of the epoch that ended; called on rank 0 only."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return all that a resumed run needs, as tensors and plain values; called on rank 0 only.

        Only the same strategy can restore it, with any number of workers.
        """
        return {"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Load what state() returned; called on every rank, servers included."""
        self.module.load_state_dict(state["model"])
        self.restore_optimizer(state["optimizer"])

    def restore_optimizer(self, state: dict[str, Any]) -> None:
        """Load the state_dict() of the optimizer, to the bit."""
        self.optimizer.load_state_dict(state)
        parameters = self.optimizer.param_groups[0]["params"]
        for place, of_weight in state["state"].items():
            # torch casts all of them to the dtype of the weight, also single numbers.
            numbers = {k: v for k, v in of_weight.items() if torch.is_tensor(v) and not v.dim()}
            self.optimizer.state[parameters[place]] |= {k: v.clone() for k, v in numbers.items()}

    def state_of_worker(self) -> dict[str, Any]:
        """Return the state that only this worker has, in the middle of an epoch."""
        return {"buffers": dict(self.module.named_buffers())}

    def restore_worker(self, state: dict[str, Any]) -> None:
        """Load what state_of_worker() returned, after restore()."""
        for name, buffer in self.module.named_buffers():
            saved = state["buffers"].get(name)
            if saved is not None and saved.shape == buffer.shape:  # a cache may have grown
                buffer.copy_(saved)

    def serve(self) -> None:
        """Run a server process until close(); called on the ranks after the workers."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the servers; called on every worker of a run that has some, after the last epoch."""

    def update(self, lr: float) -> None:
        """Step the optimizer with learning rate lr, timed as the phase "update"."""
        self.world.clock.enter("update")
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()

    def collect(self) -> None:
        """Move the gradient to where step() looks for it; called before step().

        It may be elsewhere if zero_grad() was called, which the workflow's loop does not do.
        """
        if self.flat:
            self.flat.collect()

    def clear(self) -> None:
        """Drop the gradient, faster than zero_grad()."""
        groups = [self.flat.parameters] if self.flat else []
        groups = groups or [group["params"] for group in self.optimizer.param_groups]
        for parameter in itertools.chain(*groups):
            parameter.grad = None

    def state_per_weight(self) -> list[Tensor]:
        """Return the tensors in the optimizer's state that hold a number per weight."""
        values = [value for state in self.optimizer.state.values() for value in state.values()]
        return [value for value in values if torch.is_tensor(value) and value.dim()]
