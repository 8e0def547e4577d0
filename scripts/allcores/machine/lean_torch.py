"""Import torch and torchvision without what this project never uses.

`import torch` is most of the start-up of a run, so nothing may be added to it needlessly, and a
torchvision that does not match torch must not stop us. Hence two stand-ins:

* **torch.compile.** The first optimizer, DistributedDataParallel and torchvision each import
  `torch._dynamo`, about 2 s per process, only to learn that nothing is being compiled. A stand-in
  answers these few questions. Code that needs more, such as a model of yours that calls
  `torch.compile`, gets the real module.
* **torchvision's compiled operators.** PyPI's torchvision for Linux is built against CUDA; beside a
  CPU-only torch its library does not load, and `import torchvision` fails because it describes the
  operators `nms` and `qnms`, which then do not exist. Declaring them here lets the import pass.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import types
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

COMPILER = "torch._dynamo"


class _OnDemand:
    """An import hook for the compiler and for torchvision.

    Code that imports another part of the compiler gets the real one. Operators that torchvision
    lacks are declared before it is imported.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.startswith(f"{COMPILER}.") and _is_stand_in():
            return PathFinder.find_spec(name, _real_compiler().__path__)
        if name == "torchvision":
            _declare_operators_that_do_not_load()
        return None


def _is_stand_in() -> bool:
    return "_stand_in" in vars(sys.modules[COMPILER])


def _real_compiler() -> Any:
    """Replace the stand-in with the real compiler, and return that."""
    del sys.modules[f"{COMPILER}.utils"], sys.modules[COMPILER], sys.modules["torch"]._dynamo
    return importlib.import_module(COMPILER)


def _attribute_of_compiler(name: str) -> Any:
    """Return an attribute that the stand-in lacks, from the real compiler.

    Not dunder names, which code looks up that only inspects modules.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_real_compiler() if _is_stand_in() else sys.modules[COMPILER], name)


def import_torch() -> None:
    """Import torch without its compiler, if this process has not imported it yet.

    The garbage collector is disabled meanwhile, which saves an eighth of the time, and ignores the
    imported objects from then on (gc.freeze), so that forked workers keep sharing their pages.
    """
    if "torch" in sys.modules:
        return
    gc.disable()
    _stand_in_for_the_compiler()
    gc.freeze()
    gc.enable()


def _stand_in_for_the_compiler() -> None:
    compiler = types.ModuleType(COMPILER)
    compiler.__path__ = []
    compiler.disable = lambda fn, recursive=True, **_: fn
    compiler.graph_break = lambda: None
    compiler.trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)
    compiler.utils = types.ModuleType(f"{COMPILER}.utils")
    compiler.utils.get_optimize_ddp_mode = lambda: "ddp_optimizer"
    compiler.utils.is_compile_supported = lambda device_type: False
    sys.modules[COMPILER] = compiler
    sys.modules[f"{COMPILER}.utils"] = compiler.utils
    compiler.__getattr__ = _attribute_of_compiler
    compiler._stand_in = True
    sys.meta_path.insert(0, _OnDemand())
    torch = importlib.import_module("torch")
    torch._dynamo = compiler


def import_torchvision(submodule: str) -> Any:
    """Import `torchvision.<submodule>`, whichever build of torchvision is installed."""
    if not any(isinstance(hook, _OnDemand) for hook in sys.meta_path):
        sys.meta_path.insert(0, _OnDemand())  # torch was imported without import_torch()
    return importlib.import_module(f"torchvision.{submodule}")


def _declare_operators_that_do_not_load() -> None:
    torch = importlib.import_module("torch")
    folder = Path(PathFinder.find_spec("torchvision").submodule_search_locations[0])
    try:
        torch.ops.load_library(next(folder.glob("_C*")))
    except OSError:
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}",
                "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )
