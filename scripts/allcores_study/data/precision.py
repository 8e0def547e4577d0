"""Which numbers float32 can hold, tell apart and scale."""

from __future__ import annotations

import numpy as np

# Rounding errors that a computed column may have, in steps between floats of its size.
ROUNDING = 64
# Inputs up to this size, and spreads down to its inverse, can be scaled in float32.
LARGEST = 1e30


def unfit(values: np.ndarray) -> tuple[int, str] | None:
    """Return (column, reason) for the first column that does not fit into float32; None: all fit.

    Args:
        values: (N, F), finite, of any dtype.
    """
    values = np.asarray(values)
    if values.dtype.kind == "b":
        return None
    least, most = values.min(axis=0), values.max(axis=0)
    if values.dtype.kind in "iu":  # exact, where float64 may round
        # Modulo 2^64, which offsets never reach; in the columns' type they could overflow.
        offsets = (values.astype(np.uint64) - least.astype(np.uint64)).astype(np.float64)
        noise = np.zeros(values.shape[1])
    else:
        offsets = values.astype(np.float64) - least
        # Differences by rounding alone do not count.
        size = np.maximum(np.abs(least), np.abs(most)).astype(np.float64)
        noise = ROUNDING * np.finfo(values.dtype).eps * size
    differs, spread = offsets.max(axis=0) > noise, offsets.std(axis=0)
    largest = np.maximum(np.abs(least.astype(np.float64)), np.abs(most.astype(np.float64)))
    with np.errstate(over="ignore"):
        steps = np.spacing(largest.astype(np.float32)).astype(np.float64)
    for is_so, reason in (
        (largest > LARGEST, "which float32 cannot compute with"),
        (differs & (spread < 1 / LARGEST), "which float32 cannot scale"),
        # For example, the seconds of one hour, counted from 1970.
        (differs & (steps > 0.01 * spread), "which float32 can hardly tell apart"),
    ):
        if is_so.any():
            column = int(np.flatnonzero(is_so)[0])
            digits = "d" if values.dtype.kind in "iu" else ".12g"
            span = f"{least[column]:{digits}} to {most[column]:{digits}}"
            return column, f"numbers from {span}, {reason}"
    return None
