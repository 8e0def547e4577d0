"""Files that are there as a whole or not at all, and what is in them."""

import hashlib
from pathlib import Path


def sha256(path):
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path, text):
    """Write beside, then rename: whoever looks sees the whole file or none."""
    beside = Path(f"{path}.part")
    beside.write_text(text)
    beside.replace(path)
