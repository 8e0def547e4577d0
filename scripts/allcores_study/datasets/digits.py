"""scikit-learn's 1,797 handwritten digits (UCI Optical Recognition, Alpaydin & Kaynak 1998).

They come with scikit-learn: real data without a download. 8 x 8 pixels, scaled to 32 x 32.
"""

import numpy as np

from allcores_study.data.metadata import Metadata
from allcores_study.data.storage import Samples

SIDE = 32


def metadata():
    return Metadata(train=1797, test=0, smallest_class=174, shape=(1, SIDE, SIDE), classes=10)


def load(folder):
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = (digits.images * (255 / 16)).round().astype(np.uint8)
    images = np.stack(
        [Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BILINEAR) for image in small]
    )
    return Samples(
        shape=(len(images), 1, SIDE, SIDE),
        chunks=[images[:, None]],
        targets=digits.target,
        classes=list(digits.target_names),
        train=len(images),
    )
