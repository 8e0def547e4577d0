"""Train one network with several processes, on the cores of one machine or of several.

This is the engine of allcores_study; docs/loop.md shows how to use it in your own training loop.
"""

from __future__ import annotations

import importlib
from typing import Any

from allcores.version import __version__

__all__ = ["RankFailedError", "SharedModel", "Worker", "__version__", "run"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, since much of the package works without torch."""
    if name not in __all__:
        raise AttributeError(f"module 'allcores' has no attribute {name!r}")
    # Not an import statement, which the fingerprints of runs would follow.
    return getattr(importlib.import_module("allcores.loop.worker"), name)
