"""MNIST: 70,000 handwritten digits, 28 x 28, 10,000 of them the test set.

LeCun et al. 1998, through torchvision.
"""

from allcores.data import Outline
from allcores.datasets import _torchvision

FILES = "{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz in MNIST/raw"


def outline():
    return Outline(train=60000, test=10000, smallest_class=5421, size=28)


def load(folder):
    return _torchvision.load("MNIST", folder, FILES)
