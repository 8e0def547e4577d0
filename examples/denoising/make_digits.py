"""Write scikit-learn's handwritten digits, without their labels: digits.npz."""

import numpy as np
from sklearn.datasets import load_digits

np.savez("digits.npz", images=(15.9 * load_digits().images).astype(np.uint8))
