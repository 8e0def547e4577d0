"""Find strategies and their options by name. torch is only imported to load one."""

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
# Arguments of a strategy that are not options.
GIVEN = ("model", "make_optimizer", "world")
# These need a closure (LBFGS), matrices as weights (Muon) or sparse gradients (SparseAdam).
UNUSABLE_OPTIMIZERS = frozenset({"LBFGS", "Muon", "SparseAdam"})
# These look at whole tensors, not at each element alone.
WHOLE_TENSOR_OPTIMIZERS = frozenset({"Adafactor"})


def names() -> list[str]:
    """Return the names of the strategies."""
    files = sorted(FOLDER.glob("[!_]*.py"))
    return [file.stem for file in files if file.stem != "base"]


def load(name: str) -> type[Strategy]:
    """Return the class of a strategy, the last public one in its file."""
    module = importlib.import_module(f"allcores.strategies.{name}")
    classes = [one for one in vars(module).values() if isinstance(one, type)]
    own = [one for one in classes if one.__module__ == module.__name__]
    return [one for one in own if not one.__name__.startswith("_")][-1]


def options_of(cls: type[Strategy]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the options of a strategy's class.

    Returns:
        (name -> default, ... if it has none; None: it takes any), (name -> what is allowed, from
        ALLOWED in the class or its file).
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
    """Check the options of a strategy and return its class.

    Args:
        options: as given; the number of servers is added if the strategy has servers.

    Raises:
        ValueError: there is no such strategy or option, or it cannot use these workers.
    """
    known = names()
    if isinstance(strategy, type) and hasattr(strategy, "refusal"):
        _check_numbers(strategy, strategy.__name__, world)
        if "servers" in inspect.signature(strategy).parameters:
            options.setdefault("servers", world.servers)
        return strategy
    if not isinstance(strategy, str) or strategy not in known:
        raise ValueError(f"strategy: found {strategy!r}; expected one of {', '.join(known)}")
    cls = load(strategy)
    defaults, allowed = options_of(cls)
    if "servers" in options:
        raise ValueError(f"servers is no option here; pass run(..., servers={options['servers']})")
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
