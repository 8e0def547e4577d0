"""metrics.json: what a run leaves behind, with a checksum of its own."""

import json
from pathlib import Path

from allcores.files import checksum, write_text


def write_metrics(path, content):
    """Write metrics.json with a checksum of its own, so that an edited one is noticed."""
    text = json.dumps(content | {"sha256": checksum(content)}, indent=1, allow_nan=False)
    write_text(path, text)


def read_metrics(path):
    """The content that write_metrics wrote, without its checksum.

    Raises:
        ValueError: the file is damaged or was changed since.
        OSError: it cannot be read.
    """
    try:
        content = json.loads(Path(path).read_text())
        sound = content.pop("sha256") == checksum(content)
    except (ValueError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise ValueError(
            f"{path} was changed after the training that wrote it. Delete it to train again"
        )
    return content
