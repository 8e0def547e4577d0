"""Combine tensors of several ranks element by element, for the backend `shm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from torch import Tensor


ReduceOp = dist.ReduceOp.RedOpType
COMBINE = {
    ReduceOp.SUM: torch.Tensor.add_,
    ReduceOp.AVG: torch.Tensor.add_,
    ReduceOp.PRODUCT: torch.Tensor.mul_,
    ReduceOp.MIN: lambda total, row: torch.minimum(total, row, out=total),
    ReduceOp.MAX: lambda total, row: torch.maximum(total, row, out=total),
    ReduceOp.BAND: torch.Tensor.bitwise_and_,
    ReduceOp.BOR: torch.Tensor.bitwise_or_,
    ReduceOp.BXOR: torch.Tensor.bitwise_xor_,
}
OF_BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
ROUNDED = (torch.float16, torch.bfloat16)  # added up as float32
FLOATS = (torch.float32, torch.float64, *ROUNDED)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def is_combined_here(tensors: list[Tensor], operation: Any) -> bool:
    """Return whether tensors are combined here; others are for gloo, which may refuse them.

    Args:
        operation: torch.distributed.ReduceOp.
    """
    (tensor, *others), kind = tensors, operation.op
    if others or not is_moved_here(tensor) or kind not in COMBINE:
        return False
    return tensor.dtype in INTEGERS or (tensor.dtype in FLOATS and kind not in OF_BITS)


def is_moved_here(tensor: Tensor) -> bool:
    """Return whether the numbers of a tensor lie in memory as they are.

    They do not if it is sparse or quantized, if its conjugate or negative is taken when it is read,
    or if it has no memory.
    """
    return (
        tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def combine(rows: Any, total: Any, operation: Any, size: int | None = None) -> None:
    """Combine rows into a total that holds the first, in this order, for the same bits every time.

    Args:
        operation: a member of ReduceOp.
        size: number of ranks by which the sum is divided for a mean; None: it is divided later.
    """
    exact = total.float() if total.dtype in ROUNDED else total
    for row in rows[1:]:
        COMBINE[operation](exact, row)
    if operation == ReduceOp.AVG and size:
        divide(exact, size)
    if exact is not total:
        total.copy_(exact)


def divide(total: Any, count: int) -> None:
    """Turn a sum into a mean, in place. A mean of integers loses its fraction, as with NCCL."""
    total.div_(count, rounding_mode="trunc" if total.dtype in INTEGERS else None)
