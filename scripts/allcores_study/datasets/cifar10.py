"""CIFAR-10: 60,000 colour photographs, 32 x 32, in 10 classes; 10,000 are the test set.

Krizhevsky 2009, through torchvision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.data.facts import Facts
from allcores_study.datasets import _torchvision

if TYPE_CHECKING:
    from pathlib import Path

    from allcores_study.data.storage import Samples

FILES = "cifar-10-python.tar.gz"


def facts() -> Facts:
    return Facts(50000, 10000, (3, 32, 32), outputs=10, class_counts=[5000] * 10)


def load(folder: Path) -> Samples:
    return _torchvision.load("CIFAR10", folder, FILES)
