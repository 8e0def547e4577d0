"""torch's DistributedDataParallel on gloo, the standard way of synchronous data parallelism.

Gradients are gathered into buckets; as soon as backward() has filled one, gloo all-reduces it while
backward() goes on. Every worker then applies the same averaged gradient. With W workers and n
weights each worker sends 2 (W - 1) / W * n numbers per step, through loopback TCP on one machine.

Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
"""

import torch

from allcores.strategies.base import Strategy


class DDP(Strategy):
    """Average the gradients over the workers inside backward(), then update locally.

    The phase "communicate" is what backward() does not hide: from the gradient of the first
    parameter, the last to be computed, to the end of backward().
    """

    def __init__(self, model, optimizer, world, *, bucket_mb=25):
        super().__init__(model, optimizer, world)
        # forward_sync_buffers=False: batch-norm statistics stay each worker's own until settle().
        self.model = torch.nn.parallel.DistributedDataParallel(
            model, forward_sync_buffers=False, bucket_cap_mb=bucket_mb
        )
        next(model.parameters()).register_post_accumulate_grad_hook(
            lambda parameter: world.clock.enter("communicate")
        )

    def step(self, lr):
        self.update(lr)
