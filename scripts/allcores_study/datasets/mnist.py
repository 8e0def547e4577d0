"""MNIST: 70,000 handwritten digits, 28 x 28; 10,000 are the test set.

LeCun et al. 1998, through torchvision.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from allcores_study.data.metadata import Metadata
from allcores_study.datasets import _torchvision

if TYPE_CHECKING:
    from allcores_study.data.storage import Samples

FILES = "{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz in MNIST/raw"
# Unpacked file -> MD5 sum.
CONTENTS = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}


def metadata() -> Metadata:
    return Metadata(train=60000, test=10000, smallest_class=5421, shape=(1, 28, 28), classes=10)


def load(folder: Path) -> Samples:
    _torchvision.unpack(Path(folder) / "MNIST" / "raw", CONTENTS)
    return _torchvision.load("MNIST", folder, FILES)
