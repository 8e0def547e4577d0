"""Find strategies by name. torch is only imported to load one."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allcores.parallel.world import World
    from allcores.strategies.base import Strategy


FOLDER = Path(__file__).parents[1] / "strategies"
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


def chosen(strategy: str | type[Strategy], options: dict[str, Any], world: World) -> type[Strategy]:
    """Return the class of a strategy, by its name unless it is one.

    Args:
        options: as given; the number of servers is added if the strategy has servers.

    Raises:
        ValueError: there is no such strategy, or it cannot use these workers.
    """
    if isinstance(strategy, type) and hasattr(strategy, "refusal"):
        cls, name = strategy, strategy.__name__
    elif isinstance(strategy, str) and strategy in names():
        cls, name = load(strategy), strategy
    else:
        raise ValueError(f"strategy: found {strategy!r}; expected one of {', '.join(names())}")
    if "servers" in inspect.signature(cls).parameters:
        if world.servers == 0 or options.setdefault("servers", world.servers) != world.servers:
            raise ValueError(f"{name} expects run(..., servers=1) or more; found {world.servers}")
    elif world.servers:
        raise ValueError(f"{name} expects no servers; found {world.servers}")
    if cls.one_worker and world.workers > 1:
        raise ValueError(f"{name} uses one worker; found {world.workers}")
    if cls.one_node and world.nodes > 1:
        raise ValueError(f"{name} uses one machine; found {world.nodes}")
    return cls
