"""Common code of the datasets that torchvision downloads."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

from allcores.files import whole
from allcores_study.data.storage import Samples

ATTEMPTS = 3
PAUSE = 5  # seconds between attempts


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
    from allcores.machine.lean_torch import import_torchvision

    dataset_class = getattr(import_torchvision("datasets"), name)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            parts = [dataset_class(folder, train=train, download=True) for train in (True, False)]
            break
        except Exception as error:  # URLError, RuntimeError, EOFError: networks fail in many ways
            if attempt == ATTEMPTS:
                present = [
                    str(f.relative_to(folder)) for f in Path(folder).rglob("*") if f.is_file()
                ]
                raise ValueError(
                    f"could not get {name} ({error}). Without a network, put the original files "
                    f"into {folder} by hand: {files}. It now contains: "
                    f"{', '.join(sorted(present)) or 'nothing'}"
                ) from None
            print(f"attempt {attempt} of {ATTEMPTS} failed: {error}", flush=True)
            time.sleep(PAUSE)
    images = [_channels_first(np.asarray(part.data)) for part in parts]
    return Samples(
        shape=(sum(map(len, images)), *images[0].shape[1:]),
        chunks=images,
        targets=np.concatenate([np.asarray(part.targets) for part in parts]),
        classes=parts[0].classes,
        train=len(images[0]),
    )


def unpack(folder: str | Path, contents: dict[str, str]) -> None:
    """Unpack the .gz files that were put into a folder, whoever compressed them.

    torchvision accepts only the published archives; here only their content counts.

    Args:
        contents: name of each unpacked file -> its MD5 sum.

    Raises:
        ValueError: the content of a file is not the published one.
    """
    for name, published in contents.items():
        file, packed = Path(folder) / name, Path(folder) / f"{name}.gz"
        source = file if file.exists() else packed
        if not source.exists():
            continue
        try:
            content = file.read_bytes() if source is file else gzip.decompress(packed.read_bytes())
        except (OSError, EOFError) as error:
            raise ValueError(f"{source}: {error}; delete it or get it again") from None
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if md5 != published:
            raise ValueError(
                f"{source} holds {len(content):,} bytes with the MD5 sum {md5}, which is not the "
                f"published content ({published}); delete it or get it again"
            )
        if source is packed:
            with whole(file) as part:
                part.write_bytes(content)


def extract(folder: str | Path, archive: str | Path, unpacked: str | Path) -> None:
    """Extract an archive that was put into a folder; torchvision then checks each file in it.

    Raises:
        ValueError: it is damaged.
    """
    archive, unpacked = Path(folder) / archive, Path(folder) / unpacked
    if archive.exists() and not unpacked.exists():
        try:
            with tarfile.open(archive) as tar, tempfile.TemporaryDirectory(dir=folder) as temporary:
                tar.extractall(temporary, filter="data")
                (Path(temporary) / unpacked.name).rename(unpacked)
        except (OSError, EOFError, tarfile.TarError) as error:
            raise ValueError(f"{archive}: {error}; delete it or get it again") from None


def _channels_first(images: np.ndarray) -> np.ndarray:
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
