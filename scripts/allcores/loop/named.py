"""Strategies by their names, with their options. No torch until one is loaded."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.options import check

if TYPE_CHECKING:
    from allcores.parallel.world import World
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


def options_of(cls: type[Strategy]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
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


def chosen(strategy: str | type[Strategy], options: dict[str, Any], world: World) -> type[Strategy]:
    """The class of a strategy, once its options are known to be right.

    Args:
        options: given; the number of servers is added where the strategy has some.

    Raises:
        ValueError: there is no such strategy or option, or it cannot use these workers.
    """
    known = names()
    if isinstance(strategy, type) and hasattr(strategy, "create"):
        _check_numbers(strategy, strategy.__name__, world)
        return strategy
    if not isinstance(strategy, str) or strategy not in known:
        raise ValueError(f"expected a strategy of {', '.join(known)}; found {strategy!r}")
    cls = load(strategy)
    defaults, allowed = options_of(cls)
    if "servers" in options:
        raise ValueError(f"expected run(..., servers={options['servers']}), not an option here")
    given = {} if defaults is None else options
    for (*_, option), problem in check((strategy,), given, defaults or {}, allowed):
        raise ValueError(f"{option} of {strategy}: {problem}")
    has_servers = "servers" in (defaults or {})
    if has_servers != bool(world.servers):
        expected = "run(..., servers=1) or more" if has_servers else "no servers"
        raise ValueError(f"{strategy} expects {expected}; found {world.servers}")
    if has_servers:
        options["servers"] = world.servers
    _check_numbers(cls, strategy, world)
    return cls


def _check_numbers(cls: type[Strategy], name: str, world: World) -> None:
    if cls.one_worker and world.workers > 1:
        raise ValueError(f"{name} uses one worker; found {world.workers}")
    if cls.one_node and world.nodes > 1:
        raise ValueError(f"{name} uses one machine; found {world.nodes}")
