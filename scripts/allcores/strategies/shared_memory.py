"""Synchronous data parallelism in shared memory, from scratch: no sockets, no copies.

All workers of a machine compute with one vector of weights, and each one's backward() puts its
gradient where the others can read it. When all have, each worker averages its slice of the
gradients and updates that slice of the weights; when all have, all go on. So averaging and updating
are shared out, too, and there is one copy of the weights and of the optimizer's state, not one per
worker. Nothing is sent: with W workers and n weights each reads n numbers of gradients per step and
writes n / W weights.

A slice is worked through in blocks that a cache can hold: averaged and updated before they leave
it.

On several nodes it has two levels. Within a node it is as above, up to the average; then worker r
of a node, which has slice r, adds up that slice with the workers r of the other nodes, over their
own connections, before it updates it. So a node sends each number once (twice, with many nodes: a
ring all-reduce), however many workers it has, and all of them send at the same time.

Guarantees: all workers hold the same weights after each step, there being only one set of them;
they are those of serial training up to rounding.

The optimizer's work is divided as in Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward
Training Trillion Parameter Models", stage 1, whose all-gather is not needed here.
"""

import copy
import math
from typing import NamedTuple

import torch

from allcores.parallel.flat import Flat, split
from allcores.strategies.base import Strategy

# Small enough to stay in cache, large enough that what an optimizer does once per call is little.
BLOCK_BYTES = 2 << 20


class Block(NamedTuple):
    """A part of my slice of the vector.

    Attributes:
        where: its place in the vector.
        weights: (m,), for the optimizer.
        gradients: everybody's, (m,) each.
    """

    where: slice
    weights: torch.nn.Parameter
    gradients: tuple[torch.Tensor, ...]


class SharedMemory(Strategy):
    """Average my slice of everybody's gradients and update my slice of the weights."""

    equals_serial = "always"
    element_wise = True

    def __init__(self, model, make_optimizer, world):
        self.world = world

        def row(shape, dtype):
            self.gradients = world.shared.zeros((world.workers_on_node, *shape), dtype)
            return self.gradients[world.rank_on_node]

        self.flat = Flat(model, weights=world.shared.zeros, gradient=row)
        self.shared_gradients = {parameter: parameter.grad for parameter in self.flat.parameters}
        self.missing = set(self.shared_gradients)
        for parameter in self.shared_gradients:
            parameter.grad = None
            parameter.register_post_accumulate_grad_hook(self._show)
        self.clips = make_optimizer.clip_norm is not None
        self.blocks = self._blocks(world.rank_on_node, world.workers_on_node)
        parts = [block.weights for block in self.blocks]
        super().__init__(model, make_optimizer(parts, self._add_up_slices), world)
        self.shared_state = {
            name: world.shared.zeros(self.flat.weights.shape, self.flat.weights.dtype)
            for name in _names_of_state_per_weight(make_optimizer, self.flat.weights.dtype)
        }
        self.to_share = True
        world.barrier_on_node()  # every worker has written the initial weights

    def _blocks(self, rank, workers):
        weights = self.flat.weights
        length = BLOCK_BYTES // weights.element_size()
        lengths = [len(part) for part in split(weights, workers)]
        mine = range(sum(lengths[:rank]), sum(lengths[: rank + 1]))
        # For one block at a time, which stays in cache; or for all, while they are sent between
        # nodes or until their norm is known.
        one_by_one = self.world.nodes == 1 and not self.clips
        average = torch.empty(length if one_by_one else len(mine), dtype=weights.dtype)
        blocks = []
        for first in range(mine.start, mine.stop, length) or [mine.start]:  # it may be empty
            where = slice(first, min(first + length, mine.stop))
            parameter = torch.nn.Parameter(weights[where])
            begin_of_average = 0 if one_by_one else where.start - mine.start
            parameter.grad = average[begin_of_average:][: len(parameter)]
            blocks.append(Block(where, parameter, self.gradients[:, where].unbind()))
        return blocks

    def _show(self, parameter):
        """Write a gradient to shared memory as soon as backward() has computed it.

        Letting autograd accumulate into shared memory would cost a pass to read it and one to clear
        it.
        """
        torch.div(parameter.grad, self.world.workers, out=self.shared_gradients[parameter])
        parameter.grad = None
        self.missing.discard(parameter)

    @staticmethod
    def exchange(workers, servers):
        return math.log2(workers), 1  # barriers; each adds up its slice of all gradients

    def step(self, lr):
        for parameter in self.missing:  # backward() gave it no gradient
            self.shared_gradients[parameter].zero_()
        self.missing = set(self.shared_gradients)
        self.world.clock.enter("wait")
        self.world.barrier_on_node()  # all gradients are there
        (group,) = self.optimizer.param_groups
        averaged = self._averaged()
        for blocks in [list(averaged)] if self.clips else ([block] for block in averaged):
            group["params"] = [block.weights for block in blocks]
            self.update(lr)
        if self.to_share:
            self._share_state()
        self.world.clock.enter("wait")
        self.world.barrier_on_node()  # all weights are there

    def _averaged(self):
        """My blocks, each once its gradient is the average of all workers'."""
        sums = []
        for block in self.blocks:
            self.world.clock.enter("average")
            _add_up(block.gradients, block.weights.grad)
            if self.world.nodes == 1:
                yield block
            else:
                sums.append(self.world.begin_all_reduce_across_nodes(block.weights.grad))
        for block, sum_over_nodes in zip(self.blocks, sums, strict=False):
            self.world.clock.enter("across_nodes")
            sum_over_nodes.wait()
            yield block

    def _add_up_slices(self, squares):
        """The sum over the slices, of which every node has all."""
        return self.world.all_reduce(squares).div_(self.world.nodes)

    def _share_state(self):
        """Move the optimizer's state to shared memory, where rank 0 can read every worker's part.

        torch's optimizers create it in their first update.
        """
        for block in self.blocks:
            state = self.optimizer.state[block.weights]
            for name, vector in self.shared_state.items():
                state[name] = vector[block.where].copy_(state[name])
        self.to_share = False

    def state(self):
        state = self.optimizer.state[self.blocks[0].weights]
        return {"model": self.module.state_dict(), "optimizer": {**state, **self.shared_state}}

    def restore(self, state):
        self.module.load_state_dict(state["model"])
        for block in self.blocks:
            self.optimizer.state[block.weights] = {
                name: value[block.where] if name in self.shared_state else copy.deepcopy(value)
                for name, value in state["optimizer"].items()
            }
        self._share_state()
        self.world.barrier_on_node()  # every worker has written the restored weights


def _add_up(gradients, total):
    """Faster than torch.sum(), which goes through several vectors at a time."""
    if len(gradients) == 1:
        total.copy_(gradients[0])
    else:
        torch.add(gradients[0], gradients[1], out=total)
    for gradient in gradients[2:]:
        total.add_(gradient)


def _names_of_state_per_weight(make_optimizer, dtype):
    """The names of what an optimizer keeps per weight, seen from an update of a single weight."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=dtype))
    weight.grad = torch.zeros_like(weight)
    optimizer = make_optimizer([weight])
    optimizer.step()
    state = optimizer.state[weight].items()
    return [name for name, value in state if torch.is_tensor(value) and value.dim()]
