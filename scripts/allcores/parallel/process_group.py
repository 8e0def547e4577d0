"""The process group of the backend `shm`: torch's collectives in shared memory.

Ranks on one machine exchange data through two blocks of memory that stay in cache. Every rank
copies a part of its tensor into its row, all meet at a barrier, and each reads the rows of the
others. Machines exchange by gloo: the first rank of each sends and receives for all of its ranks.
Collectives that move pieces from one rank to another go through gloo unchanged.

A collective has ended when its call returns, also with `async_op`: a thread that continued it in
the background would take a core from the computation.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from allcores.parallel.combining import (
    ReduceOp,
    combine,
    divide,
    is_combined_here,
    is_moved_here,
)
from allcores.parallel.exchange import (
    BLOCK,
    Done,
    Exchange,
    flattened,
    machines,
    one_thread,
    parts_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from allcores.parallel.world import World


# Up to so many elements in the rows of all ranks are added up by each rank: a second barrier, for
# each to add up a slice, takes longer.
SMALL = 1 << 15
DTYPES = sorted({kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}, key=str)
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
KINDS = (*REDUCING, "broadcast", "all_gather", "barrier", "all_to_all", "gather", "scatter")
EVERY = -1  # instead of the rank of a root
UNKNOWN = (0, 0, EVERY, 0)  # instead of a dtype, a length, a root and an operation
NAME = "shm"


def register() -> None:
    """Register the backend with torch, once."""
    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, SharedMemoryGroup, devices=["cpu"])


def of_workers(world: World, backend: str) -> Any:
    """Return a process group of the workers of a World, which exchanges by `gloo` or `shm`."""
    if backend == "gloo":
        return world.worker_group
    register()
    return world.new_group(range(world.workers), backend)


def _by_gloo(name: str, kind: str) -> Callable[..., Any]:
    """Return a method that runs a collective by gloo once all ranks of this machine are there."""

    @one_thread
    def collective(self: SharedMemoryGroup, *arguments: Any) -> Any:
        self._meet(kind)
        self.exchange.end()
        try:
            work = getattr(self.gloo, name)(*arguments)
            work.wait()
        except RuntimeError:
            self.exchange.give_up()
            raise
        return work

    return collective


def _transfer(name: str) -> Callable[..., Any]:
    """Return a method that starts a transfer between two ranks by gloo."""

    def transfer(self: SharedMemoryGroup, *arguments: Any) -> Any:
        self.exchange.check()
        return getattr(self.gloo, name)(*arguments)

    return transfer


class SharedMemoryGroup(dist.ProcessGroup):
    """A process group whose ranks may be on one machine or on several.

    Args:
        store: torch's store, only for this group.
        timeout: how long to wait for other ranks.

    Raises:
        exchange.LostRankError: from any collective: another rank has ended or did not arrive.
        ValueError: from any collective: ranks call different ones, or with tensors that differ in
            dtype or length.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self.own_rank = rank
        self.gloo: Any = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
        self.machines = machines(store, rank, size)
        self.ranks = next(ranks for ranks in self.machines if rank in ranks)
        own_store = dist.PrefixStore(f"machine of {self.ranks[0]}", store)
        self.exchange = Exchange(own_store, self.ranks, rank, timeout.total_seconds())
        self.across: Any = None  # gloo between the first ranks of several machines
        if len(self.machines) > 1 and rank == self.ranks[0]:
            across_store = dist.PrefixStore("first ranks", store)
            position = self.machines.index(self.ranks)
            self.across = dist.ProcessGroupGloo(across_store, position, len(self.machines), timeout)

    @one_thread
    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Combine a tensor with those of all ranks, in place."""
        opts = opts or dist.AllreduceOptions()
        if not is_combined_here(tensors, opts.reduceOp):
            return self._allreduce_by_gloo(tensors, opts)
        self._combine("all_reduce", tensors[0], opts.reduceOp.op)
        return Done(tensors)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any) -> Any:
        """Combine each of several tensors with those of all ranks, in place."""
        options = dist.AllreduceOptions()
        options.reduceOp, options.timeout = opts.reduceOp, opts.timeout
        for tensor in tensors:
            self.allreduce([tensor], options)
        return Done(tensors)

    @one_thread
    def reduce(self, tensors: list[Tensor], opts: Any) -> Any:
        """Combine a tensor with those of all ranks, in place at the root."""
        if not is_combined_here(tensors, opts.reduceOp):
            return self._reduce_by_gloo(tensors, opts)
        self._combine("reduce", tensors[0], opts.reduceOp.op, opts.rootRank)
        return Done(tensors)

    @one_thread
    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        """Give all ranks the tensor of the root."""
        if not is_moved_here(tensors[0]):
            return self._broadcast_by_gloo(tensors, opts)
        root = opts.rootRank
        description = _description(tensors[0], root)
        with flattened(tensors[0], writes=self.own_rank != root, dtype=torch.uint8) as flat:
            for part in parts_of(flat, BLOCK):
                self._broadcast_part(part, root, description)
        return Done(tensors)

    @one_thread
    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Give every rank the tensors of all ranks."""
        (outputs_of_all,), (tensor,) = outputs, inputs
        is_even = all(
            output.dtype == tensor.dtype and output.shape == tensor.shape
            for output in outputs_of_all
        )
        is_here = all(map(is_moved_here, [tensor, *outputs_of_all])) and not self._has_machines
        if not is_here or not is_even or len(outputs_of_all) != self.size():
            return self._allgather_by_gloo(outputs, inputs)
        self._gather(outputs_of_all, tensor)
        return Done(outputs_of_all)

    @one_thread
    def _allgather_base(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        """Give every rank the tensors of all ranks, one after the other."""
        self._check_lengths(output, tensor)
        if self._has_machines or not (is_moved_here(output) and is_moved_here(tensor)):
            return self._allgather_base_by_gloo(output, tensor)
        self._gather([*output.view(self.size(), -1)], tensor)
        return Done([output])

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Give every rank several tensors of all ranks; `outputs` has a list for each rank."""
        for position, tensor in enumerate(inputs):
            self.allgather([[of_rank[position] for of_rank in outputs]], [tensor])
        return Done([tensor for of_rank in outputs for tensor in of_rank])

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Call _allgather_base() for several tensors."""
        for output, tensor in zip(outputs, inputs, strict=True):
            self._allgather_base(output, tensor)
        return Done(outputs)

    @one_thread
    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Give rank r the combination of the tensors r in all ranks' lists."""
        (output,), (of_all,) = outputs, inputs
        is_even = [part.shape for part in of_all] == [output.shape] * self.size()
        if not is_even or not is_combined_here([output], opts.reduceOp):
            return self._reduce_scatter_by_gloo(outputs, inputs, opts)
        self._scatter(output, of_all, opts.reduceOp.op)
        return Done(outputs)

    @one_thread
    def _reduce_scatter_base(self, output: Tensor, tensor: Tensor, opts: Any) -> Any:
        """Call reduce_scatter() for one tensor of each rank, cut into equal parts."""
        self._check_lengths(tensor, output)
        if not is_combined_here([output], opts.reduceOp):
            return self._reduce_scatter_base_by_gloo(output, tensor, opts)
        self._scatter(output, [*tensor.reshape(self.size(), -1)], opts.reduceOp.op)
        return Done([output])

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Call _reduce_scatter_base() for several tensors."""
        for output, tensor in zip(outputs, inputs, strict=True):
            self._reduce_scatter_base(output, tensor, opts)
        return Done(outputs)

    @one_thread
    def barrier(self, opts: Any = None) -> Any:
        """Wait for all ranks."""
        if self._has_machines:
            return self._barrier_by_gloo()
        self._meet("barrier")
        self.exchange.end()
        return Done([])

    # The names that newer versions of torch call.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    _allreduce_by_gloo = _by_gloo("allreduce", "all_reduce")
    _reduce_by_gloo = _by_gloo("reduce", "reduce")
    _broadcast_by_gloo = _by_gloo("broadcast", "broadcast")
    _allgather_by_gloo = _by_gloo("allgather", "all_gather")
    _allgather_base_by_gloo = _by_gloo("_allgather_base", "all_gather")
    _reduce_scatter_by_gloo = _by_gloo("reduce_scatter", "reduce_scatter")
    _reduce_scatter_base_by_gloo = _by_gloo("_reduce_scatter_base", "reduce_scatter")
    _barrier_by_gloo = _by_gloo("barrier", "barrier")
    # These move pieces from one rank to another.
    gather = _by_gloo("gather", "gather")
    scatter = _by_gloo("scatter", "scatter")
    alltoall = _by_gloo("alltoall", "all_to_all")
    alltoall_base = _by_gloo("alltoall_base", "all_to_all")
    send = _transfer("send")
    recv = _transfer("recv")
    recv_anysource = _transfer("recv_anysource")
    all_to_all_single = alltoall_base

    # torch asks groups written in Python for their names by these.
    def getBackendName(self) -> str:  # noqa: N802
        return NAME

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self.name_of_group = name

    def getGroupName(self) -> str:  # noqa: N802
        return self.name_of_group

    _set_group_name = setGroupName
    group_name = property(getGroupName)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long collectives wait for other ranks from now on."""
        self.exchange.barrier.timeout = timeout.total_seconds()
        for group in filter(None, (self.gloo, self.across)):
            group._set_default_timeout(timeout)

    def shutdown(self) -> None:
        """Release what the group shares."""
        self.exchange.close()

    abort = shutdown

    def __del__(self) -> None:
        # A group that could not be created has no exchange; when Python exits, modules are gone.
        if "exchange" in vars(self) and not sys.is_finalizing():
            self.exchange.close()

    @property
    def _has_machines(self) -> bool:
        return len(self.machines) > 1

    def _check_lengths(self, whole: Any, part: Any) -> None:
        if whole.dtype != part.dtype or whole.numel() != part.numel() * self.size():
            raise ValueError(
                f"found tensors of {whole.numel()} {whole.dtype} and {part.numel()} {part.dtype}; "
                f"expected one that is {self.size()} times as long as the other, of the same dtype"
            )

    def _meet(self, kind: str, description: Any = UNKNOWN) -> None:
        """Meet the ranks of this machine, and check that all run the same collective."""
        exchange, own = self.exchange, (KINDS.index(kind), *description)
        exchange.begin(*own)
        exchange.meet()
        other = exchange.differing()
        if other is not None:
            theirs = exchange.described[exchange.step % 2][other]
            exchange.end()
            raise ValueError(
                f"rank {self.own_rank} calls {_said(*own)}, "
                f"but rank {self.ranks[other]} calls {_said(*theirs[: len(own)])}"
            )

    def _combine(self, kind: str, tensor: Tensor, operation: Any, root: Any = EVERY) -> None:
        writes = root in (EVERY, self.own_rank)
        description = _description(tensor, root, operation)
        with flattened(tensor, writes) as flat:
            for part in parts_of(flat, BLOCK // flat.element_size()):
                rows = self.exchange.rows(part.dtype)[:, : len(part)]
                rows[self.exchange.place].copy_(part)
                self._meet(kind, description)
                if rows.numel() > SMALL or self._has_machines:
                    self._combine_slices(rows, operation)
                    if writes:
                        part.copy_(rows[0])
                elif writes:
                    combine(rows, part.copy_(rows[0]), operation, self.size())
                self.exchange.end()

    def _combine_slices(self, rows: Any, operation: Any) -> None:
        """Combine this rank's slice of the rows into the first one, as all ranks do."""
        place, count, length = self.exchange.place, len(rows), rows.shape[1]
        mine = rows[:, length * place // count : length * (place + 1) // count]
        combine(mine, mine[0], operation, None if self._has_machines else self.size())
        self.exchange.meet()
        if self._has_machines:
            if self.across:
                options = dist.AllreduceOptions()
                is_mean = operation == ReduceOp.AVG
                options.reduceOp = dist.ReduceOp(ReduceOp.SUM if is_mean else operation)
                self.across.allreduce([rows[0]], options).wait()
                if is_mean:
                    divide(rows[0], self.size())
            self.exchange.meet()

    def _broadcast_part(self, part: Any, root: Any, description: Any) -> None:
        is_here = root in self.ranks
        row = self.exchange.rows(torch.uint8)[self.ranks.index(root) if is_here else 0]
        row = row[: len(part)]
        if self.own_rank == root:
            row.copy_(part)
        if is_here:
            self._meet("broadcast", description)
        if self.across:
            options = dist.BroadcastOptions()
            options.rootRank = next(k for k, ranks in enumerate(self.machines) if root in ranks)
            self.across.broadcast([row], options).wait()
        if not is_here:
            self._meet("broadcast", description)
        if self.own_rank != root:
            part.copy_(row)
        self.exchange.end()

    def _gather(self, outputs: Any, tensor: Tensor) -> None:
        description = _description(tensor)
        with contextlib.ExitStack() as stack:
            flat = stack.enter_context(flattened(tensor, writes=False, dtype=torch.uint8))
            wholes = [
                stack.enter_context(flattened(output, True, torch.uint8)) for output in outputs
            ]
            for first, part in enumerate(parts_of(flat, BLOCK)):
                rows = self.exchange.rows(torch.uint8)[:, : len(part)]
                rows[self.exchange.place].copy_(part)
                self._meet("all_gather", description)
                for whole, row in zip(wholes, rows, strict=True):
                    whole[first * BLOCK :][: len(part)].copy_(row)
                self.exchange.end()

    def _scatter(self, output: Tensor, inputs: Any, operation: Any) -> None:
        if self._has_machines:
            whole = torch.cat([tensor.detach().reshape(-1) for tensor in inputs])
            self._combine("reduce_scatter", whole, operation)
            output.detach().copy_(whole.view(self.size(), -1)[self.own_rank].view(output.shape))
            return
        description = _description(output, EVERY, operation)
        flats = [tensor.detach().reshape(-1) for tensor in inputs]
        length = BLOCK // output.element_size() // self.size()
        with flattened(output, writes=True) as flat:
            for first, part in enumerate(parts_of(flat, length)):
                rows = self.exchange.rows(part.dtype)[:, : self.size() * len(part)]
                rows = rows.view(self.size(), self.size(), -1)  # from, to, element
                for row, whole in zip(rows[self.own_rank], flats, strict=True):
                    row.copy_(whole[first * length :][: len(part)])
                self._meet("reduce_scatter", description)
                mine = rows[:, self.own_rank]
                combine(mine, part.copy_(mine[0]), operation, self.size())
                self.exchange.end()


def _description(tensor: Tensor, root: Any = EVERY, operation: Any = 0) -> tuple[int, ...]:
    return DTYPES.index(tensor.dtype), tensor.numel(), root, int(operation)


def _said(kind: int, dtype: int, length: int, root: int, operation: int) -> str:
    if (dtype, length, root, operation) == UNKNOWN:
        return f"{KINDS[kind]}()"
    of_root = "" if root == EVERY else f", with rank {root} as the root"
    by = f" by {ReduceOp(operation).name}" if KINDS[kind] in REDUCING else ""
    return f"{KINDS[kind]}() of {length} {DTYPES[dtype]}{by}{of_root}"
