"""178 wines of three growers, 13 chemical measurements each (Forina et al. 1991).

The table comes with scikit-learn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.datasets import _sklearn

if TYPE_CHECKING:
    from pathlib import Path

    from allcores_study.data.storage import Samples


def load(folder: Path) -> Samples:
    from sklearn.datasets import load_wine

    return _sklearn.load(load_wine())
