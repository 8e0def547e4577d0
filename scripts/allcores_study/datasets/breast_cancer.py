"""569 tumours, benign or malignant, 30 measurements of cell nuclei each (Wolberg et al. 1995).

The table comes with scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.datasets import _sklearn

if TYPE_CHECKING:
    from pathlib import Path

    from allcores_study.data.storage import Samples


def load(folder: Path) -> Samples:
    from sklearn.datasets import load_breast_cancer

    return _sklearn.load(load_breast_cancer())
