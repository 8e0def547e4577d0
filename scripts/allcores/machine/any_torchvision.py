"""Import torchvision whichever build of it is installed.

PyPI's torchvision for Linux is built against CUDA; beside a CPU-only torch its library of compiled
operators does not load, and `import torchvision` fails because it describes the operators `nms` and
`qnms`, which then do not exist. Declaring them before it is imported lets the import pass.
"""

from __future__ import annotations

import functools
import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any


class _BeforeTorchvision:
    """An import hook that declares the operators that torchvision lacks."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "torchvision":
            _declare_operators_that_do_not_load()


def let_it_be_imported() -> None:
    """Let any code of this process import torchvision, such as a user's model."""
    if not any(isinstance(hook, _BeforeTorchvision) for hook in sys.meta_path):
        sys.meta_path.insert(0, _BeforeTorchvision())


def import_torchvision(submodule: str) -> Any:
    """Import `torchvision.<submodule>`."""
    let_it_be_imported()
    return importlib.import_module(f"torchvision.{submodule}")


@functools.cache  # an operator can be declared once
def _declare_operators_that_do_not_load() -> None:
    torch = importlib.import_module("torch")
    spec = PathFinder.find_spec("torchvision")
    folders = (spec and spec.submodule_search_locations) or ()
    libraries = [file for folder in folders for file in Path(folder).glob("_C*")]
    if not libraries:  # torchvision is not there, or is not compiled
        return
    try:
        torch.ops.load_library(libraries[0])
    except OSError:
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}",
                "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            )
