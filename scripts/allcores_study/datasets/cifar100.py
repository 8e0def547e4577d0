"""CIFAR-100: 60,000 colour photographs, 32 x 32, in 100 classes; 10,000 are the test set.

Krizhevsky 2009, through torchvision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.data.facts import Facts
from allcores_study.datasets import _torchvision

if TYPE_CHECKING:
    from pathlib import Path

    from allcores_study.data.storage import Samples

FILES = "cifar-100-python.tar.gz"


def facts() -> Facts:
    return Facts(50000, 10000, (3, 32, 32), outputs=100, class_counts=[500] * 100)


def load(folder: Path) -> Samples:
    return _torchvision.load("CIFAR100", folder, FILES)
