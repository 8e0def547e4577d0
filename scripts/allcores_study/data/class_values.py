"""The classes of a target as its column had them, in a form that JSON can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


def described(classes: pd.Index | Sequence[Any]) -> dict[str, Any]:
    """Return what restored() makes the same classes of: their values and their dtype.

    Args:
        classes: in the order of their numbers.
    """
    import pandas as pd

    index = pd.Index(classes)
    if isinstance(index, pd.CategoricalIndex):
        of_dtype = {"categories": described(index.categories), "ordered": bool(index.ordered)}
        return {"codes": index.codes.tolist()} | of_dtype
    if isinstance(index, pd.IntervalIndex):
        ends = {"left": described(index.left), "right": described(index.right)}
        return ends | {"closed": index.closed}
    return {"values": plain(index), "dtype": str(index.dtype)}


def plain(index: pd.Index) -> list[Any]:
    """Return classes as numbers and truth values, or else as texts, which JSON can hold."""
    return [one if isinstance(one, bool | int | float) else str(one) for one in index.tolist()]


def restored(described: dict[str, Any]) -> pd.Index:
    """Return the classes that described() was given, in the order of their numbers."""
    import pandas as pd

    if "codes" in described:
        of_dtype = restored(described["categories"]), described["ordered"]
        return pd.CategoricalIndex(pd.Categorical.from_codes(described["codes"], *of_dtype))
    if "closed" in described:
        ends = restored(described["left"]), restored(described["right"])
        return pd.IntervalIndex.from_arrays(*ends, closed=described["closed"])
    return pd.Index(described["values"], dtype=object).astype(described["dtype"])
