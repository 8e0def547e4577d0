"""What the datasets that torchvision downloads have in common."""

import time

import numpy as np

from allcores.data import Images

ATTEMPTS = 3
PAUSE = 5  # seconds between attempts


def load(name, folder, files):
    """Both parts of a torchvision dataset, downloaded into folder unless they are there.

    torchvision checks each file against its published MD5 sum.

    Args:
        name: the class in torchvision.datasets.
        folder: where the files are, or will be.
        files: what may be laid there by hand, for the message.

    Raises:
        ValueError: the files are neither there, whole, nor to be had.
    """
    from allcores.lean_torch import import_torchvision

    dataset_class = getattr(import_torchvision("datasets"), name)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            parts = [dataset_class(folder, train=train, download=True) for train in (True, False)]
            break
        except Exception as error:  # URLError, RuntimeError, EOFError: as various as networks are
            if attempt == ATTEMPTS:
                raise ValueError(
                    f"could not get {name} ({error}). Where there is no network, lay the original "
                    f"files by hand: {files} in {folder}"
                ) from None
            print(f"attempt {attempt} of {ATTEMPTS} failed: {error}", flush=True)
            time.sleep(PAUSE)
    images = [_channels_first(np.asarray(part.data)) for part in parts]
    return Images(
        shape=(sum(map(len, images)), *images[0].shape[1:]),
        chunks=images,
        labels=np.concatenate([np.asarray(part.targets) for part in parts]),
        classes=parts[0].classes,
        train=len(images[0]),
    )


def _channels_first(images):
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
