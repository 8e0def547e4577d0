"""metrics.json: what a run leaves behind, with a checksum of its own."""

import hashlib
import json
from pathlib import Path

from allcores.files import write_text


def write_metrics(path, content):
    """Write metrics.json with a checksum of its own, so that an edited one is noticed."""
    text = json.dumps(content | {"sha256": _checksum(content)}, indent=1, allow_nan=False)
    write_text(path, text)


def read_metrics(path):
    """What write_metrics wrote.

    Raises:
        ValueError: the file was changed since.
    """
    try:
        content = json.loads(Path(path).read_text())
        sound = content.pop("sha256") == _checksum(content)
    except (ValueError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise ValueError(
            f"{path} was changed after the training that wrote it. Delete it to train again"
        )
    return content


def _checksum(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
