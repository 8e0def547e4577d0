"""The collectives of exchange.c: their numbers, what they combine and return, and their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.futures import Future

if TYPE_CHECKING:
    from torch import Tensor


# In the order of exchange.c. (Its operations are in the order that torch numbers them in.)
KINDS = ("all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather")
KINDS += ("barrier", "all_to_all", "gather", "scatter")
ALL_REDUCE, REDUCE, REDUCE_SCATTER, BROADCAST, ALL_GATHER = range(5)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
COMBINED = (torch.float32, torch.float64, *INTEGERS, torch.bfloat16, torch.float16)
_others = {kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)} - {*COMBINED}
DTYPES = (*COMBINED, *sorted(_others, key=str))
NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES)}
ReduceOp = dist.ReduceOp.RedOpType
SUM, MEAN = int(ReduceOp.SUM), int(ReduceOp.AVG)
OF_NUMBERS, OF_BITS = int(ReduceOp.MAX), int(ReduceOp.BXOR)  # the last ones
EVERY = -1  # instead of the rank of a root
UNKNOWN = (0, 0, EVERY, 0)  # instead of a dtype, an operation, a root and a length


class Done(dist.Work):
    """What a collective returns once it has ended."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.values = result

    def wait(self, timeout: Any = None) -> bool:
        return True

    is_completed = is_success = wait

    def result(self) -> Any:
        return self.values

    def get_future(self) -> Any:
        future: Future[Any] = Future()
        future.set_result(self.values)
        return future


def is_moved_here(tensor: Tensor) -> bool:
    """Return whether the numbers of a tensor lie in memory as they are.

    They do not if it is sparse or quantized, if its conjugate or negative is taken when it is read,
    or if it has no memory.
    """
    return (
        tensor.layout == torch.strided
        and tensor.is_cpu
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def is_combined_here(tensor: Tensor, operation: int) -> bool:
    """Return whether exchange.c combines a tensor; others are for gloo, which may refuse them."""
    dtype = tensor.dtype
    last = OF_NUMBERS if dtype.is_floating_point else OF_BITS
    return operation <= last and dtype in COMBINED and is_moved_here(tensor)


def contiguous(value: Any) -> Any:
    """Return a tensor whose numbers lie in memory one after the other; a list: of each in it."""
    if isinstance(value, list):
        return [contiguous(one) for one in value]
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return value
    if value.is_contiguous() and not (value.is_conj() or value.is_neg()):
        return value
    return value.detach().resolve_conj().resolve_neg().contiguous()


def write_back(value: Any, whole: Any) -> None:
    """Copy what contiguous() returned to where it came from."""
    if isinstance(value, list):
        for one, its_whole in zip(value, whole, strict=True):
            write_back(one, its_whole)
    elif whole is not value:
        value.detach().copy_(whole.view(value.shape))


def description(tensor: Tensor, operation: int, root: int) -> tuple[int, int, int, int]:
    return NUMBERS[tensor.dtype], operation, root, tensor.numel()


def said(kind: int, dtype: int, operation: int, root: int, length: int) -> str:
    if (dtype, operation, root, length) == UNKNOWN:
        return f"{KINDS[kind]}()"
    of_root = "" if root == EVERY else f", with rank {root} as the root"
    by = f" by {ReduceOp(operation).name}" if kind <= REDUCE_SCATTER else ""
    return f"{KINDS[kind]}() of {length} {DTYPES[dtype]}{by}{of_root}"
