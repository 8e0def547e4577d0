"""Fashion-MNIST: 70,000 pictures of clothes, 28 x 28, 10,000 of them the test set.

Xiao et al. 2017, through torchvision.
"""

from allcores.data import Outline
from allcores.datasets import _torchvision

FILES = "{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz in FashionMNIST/raw"


def outline():
    return Outline(train=60000, test=10000, smallest_class=6000, size=28)


def load(folder):
    return _torchvision.load("FashionMNIST", folder, FILES)
