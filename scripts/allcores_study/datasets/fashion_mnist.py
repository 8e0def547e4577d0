"""Fashion-MNIST: 70,000 pictures of clothes, 28 x 28; 10,000 are the test set.

Xiao et al. 2017, through torchvision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.data.facts import Facts
from allcores_study.datasets import _torchvision

if TYPE_CHECKING:
    from pathlib import Path

    from allcores_study.data.storage import Samples

FILES = "{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz in FashionMNIST/raw"


def facts() -> Facts:
    return Facts(60000, 10000, (1, 28, 28), outputs=10, class_counts=[6000] * 10)


def load(folder: Path) -> Samples:
    return _torchvision.load("FashionMNIST", folder, FILES)
