"""Fashion-MNIST: 70,000 pictures of clothes, 28 x 28; 10,000 are the test set.

Xiao et al. 2017, through torchvision.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from allcores_study.data.metadata import Metadata
from allcores_study.datasets import _torchvision

if TYPE_CHECKING:
    from allcores_study.data.storage import Samples

FILES = "{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz in FashionMNIST/raw"
# Unpacked file -> MD5 sum.
CONTENTS = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}


def metadata() -> Metadata:
    return Metadata(train=60000, test=10000, smallest_class=6000, shape=(1, 28, 28), classes=10)


def load(folder: Path) -> Samples:
    _torchvision.unpack(Path(folder) / "FashionMNIST" / "raw", CONTENTS)
    return _torchvision.load("FashionMNIST", folder, FILES)
