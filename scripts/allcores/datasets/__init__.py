"""One file per dataset. Each has

* load(folder, *, options...) -> data.Images, where folder holds the downloads;
* outline(options...) -> data.Outline, or None where only load() can tell: so that a config that
  asks for too many folds is refused at once, and long runs are told from short ones.

None imports torch or torchvision before load() is called.
"""

import json
from pathlib import Path

from allcores import data, fingerprint, registry


def prepare(choice, downloads, folder):
    """Write the dataset that a Choice names into a folder; see data.write.

    Args:
        downloads: where each dataset has a folder of its own for the originals.

    Raises:
        ValueError: the originals are not to be had, or are not what they should be.
    """
    load = registry.datasets()[choice.name].load()
    images = load(Path(downloads) / choice.name, **choice.options)
    data.write(folder, images, made_from=_identity(choice))


def is_prepared(choice, folder):
    """Whether the folder holds what prepare() would write; never of files that may have changed."""
    info = Path(folder) / "dataset.json"
    unchanging = "path" not in choice.options
    return (
        unchanging
        and info.exists()
        and json.loads(info.read_text()).get("made_from") == _identity(choice)
    )


def _identity(choice):
    return f"{choice.to_json()} {fingerprint.of_dataset(choice.name)}"
