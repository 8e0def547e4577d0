"""Common code of the datasets that torchvision downloads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from allcores_study.data.storage import Samples
from allcores_study.tasks import base as tasks


def load(name: str, folder: str | Path, files: str) -> Samples:
    """Return the Samples of a torchvision dataset, downloading its files unless they are there.

    torchvision compares each file that it downloads with its published MD5 sum, and those of CIFAR
    whenever it reads them.

    Args:
        name: the class in torchvision.datasets.
        folder: where the files are, or will be.
        files: the original files, for the message: they can be put there by hand.

    Raises:
        ValueError: the files are missing or damaged, and cannot be downloaded.
    """
    from allcores.machine.any_torchvision import import_torchvision

    dataset_class = getattr(import_torchvision("datasets"), name)
    try:
        parts = [dataset_class(folder, train=train, download=True) for train in (True, False)]
    except Exception as error:  # URLError, RuntimeError, EOFError: networks fail in many ways
        present = [str(f.relative_to(folder)) for f in Path(folder).rglob("*") if f.is_file()]
        raise ValueError(
            f"could not get {name} ({error}). Without a network, put the original files into "
            f"{folder} by hand: {files}. It now contains: {', '.join(sorted(present)) or 'nothing'}"
        ) from None
    images = [_channels_first(np.asarray(part.data)) for part in parts]
    return Samples(
        shape=(sum(map(len, images)), *images[0].shape[1:]),
        chunks=images,
        targets=np.concatenate([np.asarray(part.targets) for part in parts]),
        train=len(images[0]),
        task=tasks.named("classification", len(parts[0].classes)),
        names=parts[0].classes,
    )


def _channels_first(images: np.ndarray) -> np.ndarray:
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
