"""Common code of the tables that come with scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from allcores_study.data.storage import Samples
from allcores_study.tasks import base as tasks


def load(table: Any) -> Samples:
    """Return the Samples of a table: of classes, if these have names.

    Args:
        table: what a load_...() of sklearn.datasets returns.
    """
    names = [str(name) for name in table["target_names"]] if "target_names" in table else None
    return Samples(
        shape=table.data.shape,
        chunks=[np.asarray(table.data, np.float64)],
        targets=table.target,
        train=len(table.target),
        task=tasks.named("classification", len(names)) if names else tasks.named("regression", 1),
        names=names,
        columns=[{"name": name, "category": None} for name in map(str, table.feature_names)],
        dtype=np.float64,
    )
