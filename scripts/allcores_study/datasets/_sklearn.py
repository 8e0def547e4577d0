"""Common code of the tables that come with scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from allcores_study.data.storage import Samples


def load(table: Any, is_regression: bool = False) -> Samples:
    """Return the Samples of a table.

    Args:
        table: what a load_...() of sklearn.datasets returns.
    """
    return Samples(
        shape=table.data.shape,
        chunks=[table.data.astype(np.float32)],
        targets=table.target,
        classes=None if is_regression else [str(name) for name in table.target_names],
        train=len(table.target),
        columns=[{"name": name, "category": None} for name in map(str, table.feature_names)],
        dtype=np.float32,
    )
