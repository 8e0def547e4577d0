"""scikit-learn's 1,797 handwritten digits (UCI Optical Recognition, Alpaydin & Kaynak 1998).

They come with scikit-learn: real data without a download. 8 x 8 pixels, scaled to 32 x 32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allcores_study.data.storage import Samples
from allcores_study.tasks import base as tasks

if TYPE_CHECKING:
    from pathlib import Path

SIDE = 32


def load(folder: Path) -> Samples:
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = (digits.images * (255 / 16)).round().astype(np.uint8)
    images: np.ndarray = np.stack(
        [Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BILINEAR) for image in small]  # type: ignore[misc]
    )
    return Samples(
        shape=(len(images), 1, SIDE, SIDE),
        chunks=[images[:, None]],
        targets=digits.target,
        train=len(images),
        task=tasks.named("classification", 10),
        names=list(digits.target_names),
    )
