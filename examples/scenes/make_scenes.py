"""Draw handwritten digits on noisy backgrounds: images/, and masks/ of even and odd digits.

The digits come from scikit-learn, so nothing is downloaded.
"""

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

COUNT, SIZE = 240, 32
digits = load_digits()
generator = np.random.default_rng(0)
for folder in ("images", "masks"):
    Path(folder).mkdir(exist_ok=True)
for number in range(COUNT):
    image = generator.normal(50, 25, (SIZE, SIZE)).clip(0, 255)
    mask = np.zeros((SIZE, SIZE), np.uint8)
    for _ in range(3):
        chosen = generator.integers(len(digits.images))
        row, column = generator.integers(0, SIZE - 8, 2)
        place = slice(row, row + 8), slice(column, column + 8)
        ink = 15 * digits.images[chosen]
        image[place] = np.maximum(image[place], ink)
        mask[place][ink > 75] = 1 + digits.target[chosen] % 2
    Image.fromarray(image.astype(np.uint8)).save(f"images/{number:03d}.png")
    Image.fromarray(mask).save(f"masks/{number:03d}.png")
