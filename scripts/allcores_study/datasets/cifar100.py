"""CIFAR-100: 60,000 colour photographs, 32 x 32, 100 classes, 10,000 of them the test set.

Krizhevsky 2009, through torchvision.
"""

from allcores_study.data.metadata import Metadata
from allcores_study.datasets import _torchvision

FILES = "cifar-100-python.tar.gz"


def metadata():
    return Metadata(train=50000, test=10000, smallest_class=500, shape=(3, 32, 32), classes=100)


def load(folder):
    _torchvision.extract(folder, FILES, "cifar-100-python")
    return _torchvision.load("CIFAR100", folder, FILES)
