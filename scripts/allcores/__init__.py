"""Train on every core, and measure which way of using them is fastest. docs/adding.md says what
each folder is for, and which others it may import; docs/loop.md what is for loops of one's own."""

from __future__ import annotations

import importlib
from typing import Any

from allcores.version import __version__

__all__ = ["RankFailedError", "SharedModel", "Worker", "__version__", "run"]


def __getattr__(name: str) -> Any:
    """What is public, imported once it is asked for: much of the package works without torch."""
    if name not in __all__:
        raise AttributeError(f"module 'allcores' has no attribute {name!r}")
    # Not an import statement: runs do not depend on it.
    return getattr(importlib.import_module("allcores.loop.worker"), name)
