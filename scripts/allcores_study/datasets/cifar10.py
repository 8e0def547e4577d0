"""CIFAR-10: 60,000 colour photographs, 32 x 32, in 10 classes; 10,000 are the test set.

Krizhevsky 2009, through torchvision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allcores_study.data.metadata import Metadata
from allcores_study.datasets import _torchvision

if TYPE_CHECKING:
    from pathlib import Path

    from allcores_study.data.storage import Samples

FILES = "cifar-10-python.tar.gz"


def metadata() -> Metadata:
    return Metadata(train=50000, test=10000, smallest_class=5000, shape=(3, 32, 32), classes=10)


def load(folder: Path) -> Samples:
    _torchvision.extract(folder, FILES, "cifar-10-batches-py")
    return _torchvision.load("CIFAR10", folder, FILES)
