"""Check that a network computes with nothing except its input, its weights and constants.

A stack computes what torch.fx has traced once. forward() does the same each time only if it keeps
no state and draws no random numbers. The check looks at what forward() can reach, not at what it
does: its bytecode may name submodules, parameters, buffers, plain values and a few functions of
torch, and nothing else. Any other network is trained alone.
"""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

# The attributes of torch.nn.Module, of which a user's class may define only those in OWN.
OF_MODULE = frozenset(vars(nn.Module))
OWN = {"forward", "__init__", "__module__", "__doc__", "__annotations__", "__static_attributes__"}
OWN |= {"__firstlineno__", "__constants__", "extra_repr"}
OF_INSTANCE = frozenset(vars(nn.Module()))
NAMESPACES = {torch, nn, nn.functional}
BUILTINS = {"range", "len", "zip", "enumerate", "reversed"}
# Names within torch's namespaces, and an attribute of every module.
NAMES = {"nn", "functional", "training"}
WRITES: tuple[str, ...]
WRITES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_GLOBAL", "STORE_NAME", "DELETE_")
WRITES += ("IMPORT_", "YIELD_", "LOAD_BUILD_CLASS", "SETUP_ANNOTATIONS")


def impurity(model: nn.Module, functions: set[Any], methods: set[str]) -> str | None:
    """Return why forward() may do something else each time; None: it cannot.

    Args:
        functions: functions of torch that forward() may call.
        methods: names of methods of tensors that it may call.
    """
    known = NAMES | {function.__name__ for function in functions} | set(methods)
    for path, module in model.named_modules():
        if problem := _problem(module, functions, known):
            return f"{path or 'the network'}: {problem}"
    return None


def plain_values(module: nn.Module) -> dict[str, Any]:
    """Return name -> value of each attribute that is not a weight, buffer or submodule."""
    return {name: value for name, value in vars(module).items() if name not in OF_INSTANCE}


def _problem(module: nn.Module, functions: set[Any], known: set[str]) -> str | None:
    kind, attributes = type(module), plain_values(module)
    for name, value in attributes.items():
        # forward() cannot change a list: it would have to name append() or the like.
        if not _is_plain(tuple(value) if type(value) is list else value):
            return f"its {name} is a {type(value).__name__}"
    own: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base is not object and not _is_of_torch(base):
            own |= vars(base)
    if changed := sorted((own.keys() & OF_MODULE) - OWN):
        return f"it has a {changed[0]}() of its own"
    if _is_of_torch(kind.forward):
        return None
    parts = module._modules | module._parameters | module._buffers
    return _problem_of_code(kind.forward, own, known | {*attributes, *parts}, functions)


def _is_of_torch(value: Any) -> bool:
    return getattr(value, "__module__", "").startswith("torch.nn.modules.")


def _is_plain(value: object) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _problem_of_code(
    function: Any,
    own: dict[str, Any],
    known: set[str],
    functions: set[Any],
    callers: tuple[str, ...] = (),
) -> str | None:
    """Return why a method may reach more than it should; None: it cannot.

    Args:
        function: forward(), or a method that it calls.
        own: name -> value of what the module's class defines, and its bases that are not torch's.
        known: names that an attribute may have.
        callers: names of the methods whose calls lead here.
    """
    if type(function) is not types.FunctionType or function.__closure__:
        return "its forward() is not a plain method"
    if not _is_plain((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())):
        return "an argument of forward() has a default that is not a plain value"
    for instruction in _instructions(function.__code__):
        name, value = instruction.opname, instruction.argval
        if name.startswith(WRITES):
            return "its forward() changes something"
        if name == "LOAD_GLOBAL" and not _is_known_global(function, value, functions):
            return f"its forward() uses {value}"
        if name not in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
            continue
        if type(own.get(value)) is types.FunctionType and value not in callers:
            problem = _problem_of_code(own[value], own, known, functions, (*callers, value))
            if problem:
                return problem
        elif value in own:
            if not _is_plain(own[value]):
                return f"its forward() uses {value}"
        elif value not in known:
            return f"its forward() uses {value}"
    return None


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    """Yield the instructions of a function, and of the comprehensions in it."""
    for instruction in dis.get_instructions(code):
        yield instruction
        if isinstance(instruction.argval, types.CodeType):
            yield from _instructions(instruction.argval)


def _is_known_global(function: types.FunctionType, name: str, functions: set[Any]) -> bool:
    if name not in function.__globals__:
        return name in BUILTINS and hasattr(builtins, name)
    value = function.__globals__[name]
    if isinstance(value, types.ModuleType):
        return value in NAMESPACES
    return _is_plain(value) or (callable(value) and value in functions)
