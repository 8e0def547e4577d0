"""Studies: the way from a config through runs to a report.

cross_validate() and compare_strategies() run a study from Python, see docs/python.md.

This package imports the engine, `allcores`, never the reverse. docs/adding.md lists what each
folder is for and which others it may import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allcores_study.interactive.cross_validate import compare_strategies, cross_validate
    from allcores_study.interactive.result import Result
    from allcores_study.serving.model import Model

_MODULES = {
    "Model": "serving.model",
    "Result": "interactive.result",
    "compare_strategies": "interactive.cross_validate",
    "cross_validate": "interactive.cross_validate",
}
__all__ = ["Model", "Result", "compare_strategies", "cross_validate"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the programs of the workflow start without pandas."""
    if name not in _MODULES:
        raise AttributeError(f"module 'allcores_study' has no attribute {name!r}")
    # Not an import statement, which the fingerprints of runs would follow.
    module = importlib.import_module(f"allcores_study.{_MODULES[name]}")
    return getattr(module, name)
