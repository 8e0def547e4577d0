"""442 patients, 10 measurements each; diabetes progression after a year (Efron et al. 2004).

The table comes with scikit-learn. The targets are numbers, from 25 to 346.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.datasets import _sklearn

if TYPE_CHECKING:
    from pathlib import Path

    from allcores_study.data.storage import Samples

TASK = "regression"


def load(folder: Path) -> Samples:
    from sklearn.datasets import load_diabetes

    return _sklearn.load(load_diabetes())
