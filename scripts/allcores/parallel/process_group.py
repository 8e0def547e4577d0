"""The process group of the backend `shm`: torch's collectives in shared memory.

Ranks on one machine exchange by exchange.c. Machines exchange by gloo: the first rank of each sends
and receives for all of its ranks. Collectives that move pieces from one rank to another go through
gloo unchanged.

A collective has ended when its call returns, also with `async_op`: a thread that continued it in
the background would take a core from the computation.
"""

from __future__ import annotations

import functools
import operator
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from allcores.parallel import joining
from allcores.parallel.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    EVERY,
    INTEGERS,
    KINDS,
    MEAN,
    REDUCE,
    REDUCE_SCATTER,
    SUM,
    UNKNOWN,
    Done,
    ReduceOp,
    contiguous,
    description,
    is_combined_here,
    is_moved_here,
    said,
    write_back,
)
from allcores.parallel.exchange import DifferentCallError
from allcores.parallel.joining import JoinedExchange

if TYPE_CHECKING:
    from torch import Tensor

    from allcores.parallel.world import World


NAME = "shm"


def register() -> None:
    """Register the backend with torch, once."""
    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, SharedMemoryGroup, devices=["cpu"])


def of_workers(world: World, backend: str) -> Any:
    """Return a process group of the workers of a World, which exchanges by `gloo` or `shm`."""
    if backend == "gloo":
        return world.worker_group
    if world.shm_group is None:  # torch would keep one for each model of a loop over folds
        register()
        world.shm_group = world.new_group(range(world.workers), backend)
    return world.shm_group


def _one_thread(collective: Callable[..., Any]) -> Callable[..., Any]:
    """Let only one thread of a process at a time run a collective."""

    @functools.wraps(collective)
    def alone(self: SharedMemoryGroup, *arguments: Any, **named: Any) -> Any:
        self.exchange.check_process()
        with self.lock:
            return collective(self, *arguments, **named)

    return alone


def _for_each(collective: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls a collective for each of several tensors."""

    def all_of(self: SharedMemoryGroup, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        for output, tensor in zip(outputs, inputs, strict=True):
            collective(self, output, tensor, opts)
        return Done(outputs)

    return all_of


def _by_gloo(name: str, kind: str) -> Callable[..., Any]:
    """Return a method that runs a collective by gloo once all ranks of this machine are there."""

    @_one_thread
    def collective(self: SharedMemoryGroup, *arguments: Any) -> Any:
        self._call(KINDS.index(kind))
        # gloo reads and writes any tensor as if it were contiguous.
        wholes = [contiguous(argument) for argument in arguments]
        work = self._wait_for(getattr(self.gloo, name), *wholes)
        if arguments:  # outputs come first
            write_back(arguments[0], wholes[0])
        return work

    return collective


def _transfer(name: str) -> Callable[..., Any]:
    """Return a method that starts a transfer between two ranks by gloo."""

    def transfer(self: SharedMemoryGroup, tensors: Any, *arguments: Any) -> Any:
        self.exchange.check_process()
        self.exchange.check()
        wholes = [contiguous(tensor) for tensor in tensors]
        if name != "send" and any(map(operator.is_not, wholes, tensors)):
            # It is written to when all has come, where nothing can be copied any more.
            raise ValueError("found a tensor that is not contiguous; expected one that is")
        return getattr(self.gloo, name)(wholes, *arguments)

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
        self.own_rank, self.count, self.lock = rank, size, threading.RLock()
        self.gloo: Any = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)
        processes = joining.processes(store, rank, size)
        machines = dict.fromkeys(process.machine for process in processes)
        self.machines = [  # the ranks on each, ordered by their first ones
            [other for other, process in enumerate(processes) if process.machine == machine]
            for machine in machines
        ]
        self._has_machines = len(self.machines) > 1
        self.ranks = next(ranks for ranks in self.machines if rank in ranks)
        own_store = dist.PrefixStore(f"machine of {self.ranks[0]}", store)
        here = {other: processes[other] for other in self.ranks}
        self.exchange = JoinedExchange(own_store, here, rank, timeout.total_seconds())
        self.across: Any = None  # gloo between the first ranks of several machines
        if len(self.machines) > 1 and rank == self.ranks[0]:
            across_store = dist.PrefixStore("first ranks", store)
            position = self.machines.index(self.ranks)
            self.across = dist.ProcessGroupGloo(across_store, position, len(self.machines), timeout)

    @_one_thread
    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Combine a tensor with those of all ranks, in place."""
        opts = opts or dist.AllreduceOptions()
        operation = opts.reduceOp.op.value
        if len(tensors) > 1 or not is_combined_here(tensors[0], operation):
            return self._allreduce_by_gloo(tensors, opts)
        self._combine(ALL_REDUCE, tensors[0], operation)
        return Done(tensors)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any) -> Any:
        """Combine each of several tensors with those of all ranks, in place."""
        options = dist.AllreduceOptions()
        options.reduceOp, options.timeout = opts.reduceOp, opts.timeout
        for tensor in tensors:
            self.allreduce([tensor], options)
        return Done(tensors)

    @_one_thread
    def reduce(self, tensors: list[Tensor], opts: Any) -> Any:
        """Combine a tensor with those of all ranks, in place at the root."""
        operation = opts.reduceOp.op.value
        self._check_root(opts.rootRank)
        if len(tensors) > 1 or not is_combined_here(tensors[0], operation):
            return self._reduce_by_gloo(tensors, opts)
        self._combine(REDUCE, tensors[0], operation, opts.rootRank)
        return Done(tensors)

    @_one_thread
    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        """Give all ranks the tensor of the root."""
        self._check_root(opts.rootRank)
        if not is_moved_here(tensors[0]):
            return self._broadcast_by_gloo(tensors, opts)
        whole, root = contiguous(tensors[0]), opts.rootRank
        if self._has_machines:
            self._broadcast_across(whole, root)
        else:
            self._run(BROADCAST, whole, [whole], [whole], root=root)
        if self.own_rank != root:
            write_back(tensors[0], whole)
        return Done(tensors)

    @_one_thread
    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Give every rank the tensors of all ranks."""
        (outputs_of_all,), (tensor,) = outputs, inputs
        is_even = all(
            output.dtype == tensor.dtype and output.shape == tensor.shape
            for output in outputs_of_all
        )
        is_here = all(map(is_moved_here, [tensor, *outputs_of_all])) and not self._has_machines
        if not is_here or not is_even or len(outputs_of_all) != self.count:
            return self._allgather_by_gloo(outputs, inputs)
        self._gather(outputs_of_all, tensor)
        return Done(outputs_of_all)

    @_one_thread
    def _allgather_base(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Any:
        """Give every rank the tensors of all ranks, one after the other."""
        self._check_lengths(output, tensor)
        if self._has_machines or not (is_moved_here(output) and is_moved_here(tensor)):
            return self._allgather_base_by_gloo(output, tensor)
        whole = contiguous(output)
        self._gather(whole.view(self.count, -1).unbind(), tensor)
        write_back(output, whole)
        return Done([output])

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Give every rank several tensors of all ranks; `outputs` has a list for each rank."""
        for position, tensor in enumerate(inputs):
            self.allgather([[of_rank[position] for of_rank in outputs]], [tensor])
        return Done([tensor for of_rank in outputs for tensor in of_rank])

    allgather_into_tensor_coalesced = _for_each(_allgather_base)

    @_one_thread
    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Give rank r the combination of the tensors r in all ranks' lists."""
        (output,), (of_all,) = outputs, inputs
        operation = opts.reduceOp.op.value
        is_even = [part.shape for part in of_all] == [output.shape] * self.count
        is_here = all(is_combined_here(tensor, operation) for tensor in (output, *of_all))
        if not is_even or not is_here or {part.dtype for part in of_all} != {output.dtype}:
            return self._reduce_scatter_by_gloo(outputs, inputs, opts)
        self._scatter(output, of_all, operation)
        return Done(outputs)

    @_one_thread
    def _reduce_scatter_base(self, output: Tensor, tensor: Tensor, opts: Any) -> Any:
        """Call reduce_scatter() for one tensor of each rank, cut into equal parts."""
        self._check_lengths(tensor, output)
        operation = opts.reduceOp.op.value
        if not (is_combined_here(output, operation) and is_moved_here(tensor)):
            return self._reduce_scatter_base_by_gloo(output, tensor, opts)
        self._scatter(output, contiguous(tensor).view(self.count, -1).unbind(), operation)
        return Done([output])

    reduce_scatter_tensor_coalesced = _for_each(_reduce_scatter_base)

    @_one_thread
    def barrier(self, opts: Any = None) -> Any:
        """Wait for all ranks."""
        if self._has_machines:
            return self._barrier_by_gloo()
        self._call(KINDS.index("barrier"))
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
        self.exchange.timeout = timeout.total_seconds()
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

    def _check_lengths(self, whole: Any, part: Any) -> None:
        if whole.dtype != part.dtype or whole.numel() != part.numel() * self.count:
            raise ValueError(
                f"found tensors of {whole.numel()} {whole.dtype} and {part.numel()} {part.dtype}; "
                f"expected one that is {self.count} times as long as the other, of the same dtype"
            )

    def _check_root(self, root: int) -> None:
        if root not in range(self.count):
            raise ValueError(f"found the root {root}; expected a rank below {self.count}")

    def _wait_for(self, of_gloo: Callable[..., Any], *arguments: Any) -> Any:
        """Run a collective of gloo; if it fails, ranks may be out of step, so the group fails."""
        try:
            work = of_gloo(*arguments)
            work.wait()
        except BaseException:
            self.exchange.give_up()
            raise
        return work

    def _run(
        self,
        kind: int,
        tensor: Tensor,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        operation: int = 0,
        root: int = EVERY,
    ) -> None:
        """Run a collective of exchange.c.

        Args:
            tensor: has the dtype and the length of each input and output.
            inputs, outputs: contiguous; one, or one for each rank.
            root: position of a rank on this machine.
        """
        addresses = [[one.data_ptr() for one in tensors] for tensors in (inputs, outputs)]
        if tensor.numel() and 0 in (*addresses[0], *addresses[1]):
            raise ValueError("found a tensor without memory of its own, as one that is awaited")
        size = tensor.element_size()
        self._call(kind, description(tensor, operation, root), size, *addresses)

    def _call(self, kind: int, call: Any = UNKNOWN, size: int = 0, *addresses: Any) -> None:
        """Run a collective, or only meet, and check that all ranks of this machine call the same.

        Args:
            call: what description() returned.
        """
        try:
            self.exchange.run(kind, *call, size, *addresses)
        except DifferentCallError as other:
            raise ValueError(
                f"rank {self.own_rank} calls {said(kind, *call)}, "
                f"but rank {self.ranks[other.place]} calls {said(*other.call)}"
            ) from None

    def _combine(self, kind: int, tensor: Tensor, operation: int, root: int = EVERY) -> None:
        is_read = root in (EVERY, self.own_rank)
        whole = contiguous(tensor)
        if self._has_machines:
            self._call(kind, description(tensor, operation, root))
            whole = whole if is_read else whole.detach().clone()
            self._combine_across(whole, operation)
        else:
            self._run(kind, whole, [whole], [whole], operation, root)
        if is_read:
            write_back(tensor, whole)

    def _combine_across(self, given: Tensor, operation: int) -> None:
        # As within a machine: a sum of 16-bit floats may overflow where their mean does not.
        is_short = given.dtype in (torch.float16, torch.bfloat16)
        tensor = given.detach().float() if is_short else given
        here = SUM if operation == MEAN else operation
        self._run(REDUCE, tensor, [tensor], [tensor], here, root=0)
        if self.across:
            options = dist.AllreduceOptions()
            options.reduceOp = dist.ReduceOp(ReduceOp(here))
            self._wait_for(self.across.allreduce, [tensor], options)
            if operation == MEAN:  # one of integers loses its fraction, as with NCCL
                rounding = "trunc" if tensor.dtype in INTEGERS else None
                tensor.detach().div_(self.count, rounding_mode=rounding)
        self._run(BROADCAST, tensor, [tensor], [tensor], root=0)
        if is_short:
            given.detach().copy_(tensor)

    def _broadcast_across(self, tensor: Tensor, root: int) -> None:
        self._call(BROADCAST, description(tensor, 0, root))
        is_here = root in self.ranks
        if is_here:
            place = self.ranks.index(root)
            self._run(BROADCAST, tensor, [tensor], [tensor], root=place)
        if self.across and tensor.numel():
            options = dist.BroadcastOptions()
            options.rootRank = next(k for k, ranks in enumerate(self.machines) if root in ranks)
            # As bytes: gloo does not know every dtype.
            numbers = tensor.detach().view(-1).view(torch.uint8)
            self._wait_for(self.across.broadcast, [numbers], options)
        if not is_here:
            self._run(BROADCAST, tensor, [tensor], [tensor], root=0)

    def _gather(self, outputs: Sequence[Tensor], tensor: Tensor) -> None:
        whole, wholes = contiguous(tensor), contiguous([*outputs])
        self._run(ALL_GATHER, whole, [whole], wholes)
        write_back([*outputs], wholes)

    def _scatter(self, output: Tensor, inputs: Sequence[Tensor], operation: int) -> None:
        if self._has_machines:
            whole = torch.cat([tensor.detach().reshape(-1) for tensor in inputs])
            self._combine(REDUCE_SCATTER, whole, operation)
            output.detach().copy_(whole.view(self.count, -1)[self.own_rank].view(output.shape))
            return
        whole, wholes = contiguous(output), contiguous([*inputs])
        self._run(REDUCE_SCATTER, whole, wholes, [whole], operation)
        write_back(output, whole)
