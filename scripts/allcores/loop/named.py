"""Strategies by their names, with their options. No torch until one is loaded."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allcores.strategies.base import Strategy


FOLDER = Path(__file__).parents[1] / "strategies"
# The arguments of a strategy that are no options.
GIVEN = ("model", "make_optimizer", "world")
# Optimizers that need a closure, weights that are matrices, sparse gradients.
UNUSABLE_OPTIMIZERS = frozenset({"LBFGS", "Muon", "SparseAdam"})
# These look at a tensor as a whole, not at each of its elements alone.
WHOLE_TENSOR_OPTIMIZERS = frozenset({"Adafactor"})


def names() -> list[str]:
    """The names of the strategies."""
    files = sorted(FOLDER.glob("[!_]*.py"))
    return [file.stem for file in files if file.stem != "base"]


def load(name: str) -> type[Strategy]:
    """The class of a strategy: the last one of its file."""
    module = importlib.import_module(f"allcores.strategies.{name}")
    classes = [one for one in vars(module).values() if isinstance(one, type)]
    own = [one for one in classes if one.__module__ == module.__name__]
    return [one for one in own if not one.__name__.startswith("_")][-1]


def options(cls: type[Strategy]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """What options a strategy's class has.

    Returns:
        (name -> default, ... if it has none; None: it takes any), (name -> what is allowed, as the
        class or its file says).
    """
    parameters = inspect.signature(cls).parameters.items()
    allowed = vars(cls).get("ALLOWED") or getattr(inspect.getmodule(cls), "ALLOWED", {})
    if any(parameter.kind is parameter.VAR_KEYWORD for _, parameter in parameters):
        return None, allowed
    defaults = {
        name: ... if parameter.default is parameter.empty else parameter.default
        for name, parameter in parameters
        if name not in GIVEN
    }
    return defaults, allowed
