"""Synchronous data parallelism in shared memory, from scratch: no sockets, no copies.

All workers of a machine compute with one vector of weights, and backward() puts each worker's
gradient where the others can read it. When all gradients are there, each worker averages its slice
of them and updates that slice of the weights. When all slices are updated, all workers continue. So
averaging and updating are also divided among the workers, and there is one copy of the weights and
of the optimizer's state, not one per worker. Nothing is sent: with W workers and n weights, each
reads n numbers of gradients per step and writes n / W weights.

A slice is processed in blocks that fit into a cache. Each is averaged and updated before it leaves
the cache.

Several nodes work on two levels. Within a node, slices are averaged as above. Worker r of a node,
which has slice r, then sums that slice with the workers r of the other nodes, over their own
connections, before it updates it. So a node sends each number once (twice with many nodes, as in a
ring all-reduce), however many workers it has, and all of them send at the same time.

Guarantees: all workers hold the same weights after each step, since there is only one set of them.
They are those of serial training up to rounding.

The optimizer's work is divided as in Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward
Training Trillion Parameter Models", stage 1, whose all-gather is not needed here.
"""

from __future__ import annotations

import copy
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from allcores.parallel.flat import Flat, places
from allcores.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from allcores.parallel.optimizers import OptimizerMaker
    from allcores.parallel.world import World


# Small enough to stay in cache, large enough that an optimizer's overhead per call is small.
BLOCK_BYTES = 2 << 20


class Block(NamedTuple):
    """A part of my slice of the vector.

    Attributes:
        gradients: of all workers of the node, (m,) each.
        average: of the gradients, (m,).
        cuts: the block for the optimizer: see Flat.cut().
    """

    gradients: tuple[torch.Tensor, ...]
    average: torch.Tensor
    cuts: list[tuple[slice, torch.nn.Parameter]]

    @property
    def parts(self) -> Any:
        return [part for _, part in self.cuts]


class SharedMemory(Strategy):
    """Average my slice of everybody's gradients and update my slice of the weights."""

    look = ("#d55e00", ">")
    equals_serial = "always"
    element_wise = True

    flat: Flat

    def __init__(self, model: nn.Module, make_optimizer: OptimizerMaker, world: World) -> None:
        self.world = world

        def row(shape: Any, dtype: torch.dtype) -> Any:
            self.gradients = world.shared.zeros((world.workers_on_node, *shape), dtype)
            return self.gradients[world.rank_on_node]

        self.flat = Flat(model, weights=world.shared.zeros, gradient=row)
        self.clear()
        show = weakref.WeakMethod(self._show)  # a parameter would keep this, which keeps it
        for parameter in self.flat.parameters:
            parameter.register_post_accumulate_grad_hook(
                lambda parameter: (method := show()) and method(parameter)
            )
        self.clips = make_optimizer.clip_norm is not None
        self.blocks = self._blocks(world.rank_on_node, world.workers_on_node)
        parts = [part for block in self.blocks for part in block.parts]
        super().__init__(model, make_optimizer(parts, self._add_up_slices), world)
        first_state = _state_of_a_weight(make_optimizer, self.flat.weights.dtype)
        self.shared_state = {
            name: world.shared.zeros(self.flat.weights.shape, self.flat.weights.dtype)
            for name, value in first_state.items()
            if torch.is_tensor(value) and value.dim()
        }
        self.to_share = True
        world.barrier_on_node()  # every worker has written the initial weights

    def _blocks(self, rank: int, workers: int) -> Any:
        weights = self.flat.weights
        length = BLOCK_BYTES // weights.element_size()
        mine = places(weights, workers)[rank]
        size = mine.stop - mine.start
        # Memory for one block at a time, which stays in cache; or for all blocks, while they are
        # sent between nodes or until their norm is known.
        one_by_one = self.world.nodes == 1 and not self.clips
        averages = torch.empty(min(length, size) if one_by_one else size, dtype=weights.dtype)
        blocks = []
        for first in range(mine.start, mine.stop, length) or [mine.start]:  # it may be empty
            where = slice(first, min(first + length, mine.stop))
            begin = 0 if one_by_one else where.start - mine.start
            average = averages[begin : begin + where.stop - where.start]
            gradients = self.gradients[:, where].unbind()
            blocks.append(Block(gradients, average, self.flat.cut(where, average)))
        return blocks

    def _show(self, parameter: Any) -> None:
        """Write a gradient to shared memory as soon as backward() has computed it.

        Letting autograd accumulate the first one there would cost a pass to read what is there, and
        one to clear it. A second backward() before step() accumulates there.
        """
        if parameter.grad.requires_grad:
            raise ValueError("expected gradients without a graph; found create_graph=True")
        part = self.flat.gradients[parameter]
        if parameter.grad is not part:
            part.copy_(parameter.grad.detach())
            parameter.grad = part

    def step(self, lr: float) -> None:
        self.flat.collect()  # backward() may give some weights no gradient
        self.world.clock.enter("wait")
        self.world.barrier_on_node()  # all gradients are there
        (group,) = self.optimizer.param_groups
        averaged = self._averaged()
        settings = {name: value for name, value in group.items() if name != "params"}
        for blocks in [list(averaged)] if self.clips else ([block] for block in averaged):
            group["params"] = [part for block in blocks for part in block.parts]
            group.update(settings)  # an optimizer may count its steps there
            self.update(lr)
        if self.to_share:
            self._share_state()
        self.world.clock.enter("wait")
        self.world.barrier_on_node()  # all weights are there
        self.clear()

    def _averaged(self) -> Any:
        """Yield my blocks, each once its gradient is averaged over all workers."""
        sums = []
        for block in self.blocks:
            self.world.clock.enter("average")
            _add_up(block.gradients, block.average)
            block.average.div_(self.world.workers)
            if self.world.nodes == 1:
                yield block
            else:
                sums.append(self.world.begin_all_reduce_across_nodes(block.average))
        for block, sum_over_nodes in zip(self.blocks, sums, strict=False):
            self.world.clock.enter("across_nodes")
            sum_over_nodes.wait()
            yield block

    def _add_up_slices(self, squares: Tensor) -> Any:
        """Return the sum over the slices, all of which every node has."""
        return self.world.all_reduce(squares).div_(self.world.nodes)

    def _share_state(self) -> None:
        """Move the optimizer's state to shared memory, where rank 0 can read every worker's part.

        torch's optimizers create it in their first update.
        """
        for where, part in self._cuts():
            state = self.optimizer.state[part]
            for name, vector in self.shared_state.items():
                state[name] = vector[where].copy_(state[name])
        self.to_share = False

    def _cuts(self) -> Any:
        return [cut for block in self.blocks for cut in block.cuts]

    def state(self) -> dict[str, Any]:
        vectors = {name: vector.clone() for name, vector in self.shared_state.items()}
        return {"model": self.module.state_dict(), "vectors": vectors, "numbers": self._numbers()}

    def _numbers(self) -> dict[str, Any] | None:
        """Return what the optimizer keeps besides a number per weight; None: no step was made."""
        if self.to_share:
            return None
        _, part = self._cuts()[0]
        kept = self.optimizer.state[part]
        return {key: value for key, value in kept.items() if key not in self.shared_state}

    def restore(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state["model"])
        if state["numbers"] is not None:
            for where, part in self._cuts():
                parts = {name: vector[where] for name, vector in state["vectors"].items()}
                self.optimizer.state[part] = copy.deepcopy(state["numbers"]) | parts
            self._share_state()
        self.world.barrier_on_node()  # every worker has written the restored state


def _add_up(gradients: Any, total: Any) -> None:
    """Sum gradients into total, faster than torch.sum(), which reads several vectors at a time."""
    if len(gradients) == 1:
        total.copy_(gradients[0])
    else:
        torch.add(gradients[0], gradients[1], out=total)
    for gradient in gradients[2:]:
        total.add_(gradient)


def _state_of_a_weight(make_optimizer: OptimizerMaker, dtype: torch.dtype) -> Any:
    """Return what an optimizer keeps of a single weight after an update with a zero gradient."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=dtype))
    weight.grad = torch.zeros_like(weight)
    optimizer = make_optimizer([weight])
    optimizer.step()
    return optimizer.state[weight]
