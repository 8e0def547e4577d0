"""Files that numpy.savez wrote, and folders of files that numpy.save wrote."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format


def read_arrays(path: str | Path, name: str | None = None, header_only: bool = False) -> Any:
    """Return an array of the file, or only its (dtype, shape); without a name, all names."""
    if Path(path).is_dir():
        return _read_folder(Path(path), name, header_only)
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"{path}: not a file that numpy.savez wrote, nor a folder of numpy.save's files"
        )
    try:
        with np.load(path) as file:
            if name is None:
                return list(file)
            if not header_only:
                return file[name]
            with file.zip.open(f"{name}.npy") as member:
                version = format.read_magic(member)
                read = format.read_array_header_1_0
                shape, _, dtype = (read if version == (1, 0) else format.read_array_header_2_0)(
                    member
                )
                return dtype, shape
    except Exception as error:  # whatever zipfile, zlib and numpy raise for a damaged file
        source = f"{path}: {name}" if name else path
        raise ValueError(f"{source}: cannot be read as numpy.savez writes it ({error})") from None


def _read_folder(folder: Path, name: str | None, header_only: bool) -> Any:
    """Do what read_arrays() does, for a folder of .npy files, which are memory-mapped."""
    if name is None:
        return [file.stem for file in sorted(folder.glob("*.npy"))]
    try:
        array = np.load(folder / f"{name}.npy", mmap_mode="r")
    except Exception as error:
        file = folder / f"{name}.npy"
        raise ValueError(f"{file}: not a file that numpy.save wrote ({error})") from None
    return (array.dtype, array.shape) if header_only else array
