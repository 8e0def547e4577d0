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
    found: dict[str, Any] = {"values": _plain(index), "dtype": str(index.dtype)}
    if isinstance(index.dtype, pd.CategoricalDtype):
        of_dtype = index.dtype.categories
        found |= {"categories": described(of_dtype), "ordered": bool(index.dtype.ordered)}
    return found


def _plain(index: pd.Index) -> list[Any]:
    return [one if isinstance(one, bool | int | float) else str(one) for one in index.tolist()]


def restored(described: dict[str, Any]) -> pd.Index:
    """Return the classes that described() was given, in the order of their numbers."""
    import pandas as pd

    dtype: Any = described["dtype"]
    if "categories" in described:
        dtype = pd.CategoricalDtype(restored(described["categories"]), described["ordered"])
    return pd.Index(described["values"], dtype=object).astype(dtype)
