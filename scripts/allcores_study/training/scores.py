"""The scores that an inner run records, as it leaves no predictions from which to compute them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from allcores_study.config import registry
from allcores_study.tasks.base import probabilities


def of_predictions(
    names: Iterable[str], true: np.ndarray, columns: dict[str, np.ndarray] | None
) -> dict[str, float | None]:
    """Return name -> value of each metric; None if it is undefined.

    Args:
        true: the true values of the held-out samples, as stored.
        columns: of Task.predictions() for them; None: the run diverged.
    """
    if columns is None:
        return dict.fromkeys(names)
    arguments = true, columns["predicted"], probabilities(columns)
    values = {name: float(registry.metric(name).load()(*arguments)) for name in names}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
