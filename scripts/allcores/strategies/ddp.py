"""torch's DistributedDataParallel on gloo, the standard way of synchronous data parallelism.

Gradients are gathered into buckets. As soon as backward() has filled one, gloo all-reduces it while
backward() continues. Every worker then applies the same averaged gradient. With W workers and n
weights, each worker sends 2 (W - 1) / W * n numbers per step, through loopback TCP on one machine.

`backend: shm` exchanges in shared memory instead (see parallel/process_group.py), while backward()
waits.

A communication hook, `fp16` or `bf16`, halves the bytes and rounds more.

Guarantees: every worker applies the same gradient, so all hold the same weights after each step.
Without a hook, they are those of serial training up to rounding.

Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from allcores.parallel.process_group import of_workers
from allcores.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


ALLOWED = {"backend": ("gloo", "shm"), "bucket_mb": 1, "hook": ("none", "fp16", "bf16")}


# What a module calls beside its forward().
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class DDP(Strategy):
    """Average the gradients over the workers inside backward(), then update locally.

    `find_unused_parameters: true` is for models in which some steps do not use a weight. It costs a
    walk through the graph of each step.

    The phase "communicate" is what backward() does not hide: from the gradient of the first
    parameter, the last to be computed, to the end of backward().
    """

    look = ("#0173b2", "^")
    equals_serial = "always"

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: OptimizerMaker,
        world: World,
        *,
        backend: str = "gloo",
        bucket_mb: float = 25,
        hook: str = "none",
        find_unused_parameters: bool = False,
    ) -> None:
        super().__init__(model, make_optimizer(model.parameters()), world)
        # forward_sync_buffers=False: batch-norm statistics stay the worker's until synchronize().
        self.model = torch.nn.parallel.DistributedDataParallel(
            model,
            process_group=of_workers(world, backend),
            init_sync=False,  # all begin with equal weights
            forward_sync_buffers=False,
            bucket_cap_mb=bucket_mb,
            find_unused_parameters=find_unused_parameters,
            gradient_as_bucket_view=True,  # saves one copy of the gradients
        )
        if hook != "none":
            self.model.register_comm_hook(None, _compressing(hook))
        self._arrange_buckets()
        first = next(parameter for parameter in model.parameters() if parameter.requires_grad)
        first.register_post_accumulate_grad_hook(lambda _: world.clock.enter("communicate"))
        self.model.register_forward_pre_hook(self._begin_forward)
        self.is_exchanged = False

    def _begin_forward(self, model: Any, inputs: Any) -> None:
        if torch.is_grad_enabled():
            self.is_exchanged = model.require_backward_grad_sync

    def _arrange_buckets(self) -> None:
        """Run one backward(), of a loss that is always 0.

        DDP rearranges its buckets after the first backward(), and the place of a gradient decides
        in which order the workers' parts of it are added. A resumed run has to add in the same
        order as one that never stopped, so both begin with the final buckets.
        """
        own = vars(self.module).get("forward")
        hooks = {name: vars(self.module)[name] for name in HOOKS}
        vars(self.module).update({name: OrderedDict() for name in HOOKS})
        self.module.forward = lambda: sum(
            0 * parameter.sum().real
            for parameter in self.module.parameters()
            if parameter.requires_grad
        )
        self.model().backward()
        with self.model.no_sync():  # type: ignore[operator]
            self.model()  # rearranges them, for which the workers wait for each other
        del self.module.forward
        vars(self.module).update(hooks)
        if own:
            self.module.forward = own
        self.clear()

    def accumulating(self) -> AbstractContextManager[Any]:
        return self.model.no_sync()  # type: ignore[operator]

    def step(self, lr: float) -> None:
        if not self.is_exchanged:
            raise ValueError(
                "the gradient was not averaged over the workers: call forward() of the strategy's "
                "model (shared.model), and make the last call before a step outside of "
                "accumulating()"
            )
        self.is_exchanged = False
        super().step(lr)

    @classmethod
    def option_for_missing_gradients(
        cls, *, find_unused_parameters: bool = False, **options: Any
    ) -> str | None:
        return None if find_unused_parameters else "set find_unused_parameters: true"


def _compressing(dtype: str) -> Any:
    """Return torch's communication hook that sends gradients as fp16 or bf16."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    compress = getattr(default_hooks, f"{dtype}_compress_hook")
    # Without a GPU, torch refuses a hook named bf16_compress_hook, although gloo can add up bf16.
    return lambda state, bucket: compress(state, bucket)
