"""Processes that train one network together on the cores of a machine, or of several: the engine of
allcores_study, and for training loops of your own (docs/loop.md)."""

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
