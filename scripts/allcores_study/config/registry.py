"""Which components a config may name.

A model is a public function of a file in models/, a strategy or dataset is a file in its folder, a
schedule is a public function of training/schedules.py; optimizers and losses are torch's classes.
component.py reads their files.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores.loop.named import UNUSABLE_OPTIMIZERS
from allcores_study.config import component
from allcores_study.programs import ENGINE, LIBRARY, PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allcores_study.config.component import Component
    from allcores_study.config.run import Entry, Run

CONFIG = PROJECT / "config" / "config.yaml"
# Options of optimizers that are switches, which their defaults, None, do not show.
SWITCHES = dict.fromkeys(("foreach", "fused"), (None, True, False))


def files(folder: Path) -> list[Path]:
    """Return the files of a folder in which every file is a component."""
    return [
        file
        for file in sorted(folder.glob("*.py"))
        if not file.stem.startswith("_") and file.stem != "base"
    ]


@functools.cache
def strategies() -> dict[str, Component]:
    """Return the strategies by name: the class in each file of strategies/."""
    return _classes("strategies", ENGINE)


@functools.cache
def tasks() -> dict[str, Component]:
    """Return the tasks by name: the class in each file of tasks/."""
    return _classes("tasks", LIBRARY)


@functools.cache
def datasets() -> dict[str, Component]:
    """Return the datasets by name: the function `load` in each file of datasets/."""
    return {
        file.stem: component.read("datasets", file.stem, _module(file), file, node)
        for file in files(LIBRARY / "datasets")
        for node in component.public(file, ast.FunctionDef)
        if node.name == "load"
    }


@functools.cache
def models() -> dict[str, Component]:
    """Return the built-in models by name: the public functions in the files of models/."""
    return _functions("models", files(LIBRARY / "models"))


@functools.cache
def schedules() -> dict[str, Component]:
    """Return the schedules by name: the public functions of schedules.py."""
    return _functions("schedules", [LIBRARY / "training" / "schedules.py"])


@functools.cache
def metrics() -> dict[str, Component]:
    """Return the built-in metrics by name: the public functions of measures.py."""
    return _functions("metrics", [LIBRARY / "analysis" / "measures.py"])


def _classes(kind: str, package: Path) -> dict[str, Component]:
    """Return the last class of each file in a package's folder of that kind, by file name."""
    return {
        file.stem: component.read(kind, file.stem, _module(file), file, nodes[-1])
        for file in files(package / kind)
        if (nodes := component.public(file, ast.ClassDef))
    }


def _functions(kind: str, paths: Iterable[Path]) -> dict[str, Component]:
    return {
        node.name: component.read(kind, node.name, _module(file), file, node)
        for file in paths
        for node in component.public(file, ast.FunctionDef)
    }


def _module(file: Path) -> str:
    """Return the name by which a file of the library is imported."""
    return ".".join(file.relative_to(LIBRARY.parent).with_suffix("").parts)


@functools.cache
def optimizers() -> dict[str, Component]:
    """Return the optimizers by name: the classes of torch.optim."""
    folder = _installed("torch") / "optim"
    usable = {}
    for node in component.parse(folder / "__init__.py").body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("torch.optim."):  # type: ignore[union-attr]
            for alias in node.names:
                file = folder / f"{node.module.removeprefix('torch.optim.')}.py"  # type: ignore[union-attr]
                classes = {node.name: node for node in component.public(file, ast.ClassDef)}
                if alias.name in classes and alias.name not in UNUSABLE_OPTIMIZERS | {"Optimizer"}:
                    usable[alias.name] = component.read(
                        "optimizers", alias.name, "torch.optim", file, classes[alias.name]
                    )
                    usable[alias.name].constants["ALLOWED"] = SWITCHES
    return usable


@functools.cache
def losses() -> dict[str, Component]:
    """Return the losses that suit a task by name: torch's, or from a file of tasks/."""
    names = {name for task in tasks().values() for name in task.constants["LOSSES"]}
    own: set[Any] = {task.constants.get("OWN_LOSSES") for task in tasks().values()} - {None}
    files = {_installed("torch") / "nn" / "modules" / "loss.py": "torch.nn"}
    files |= {(file := LIBRARY / "tasks" / f"{stem}.py"): _module(file) for stem in sorted(own)}
    return {
        node.name: component.read("losses", node.name, module, file, node)
        for file, module in files.items()
        for node in component.public(file, ast.ClassDef)
        if node.name in names
    }


def model(name: str) -> Component:
    """Return the Component of a model, by name or import path.

    Raises:
        KeyError: there is no such built-in model.
        ValueError: the import path is wrong, see component.imported().
    """
    return component.imported(name) if ":" in name else models()[name]


def trainer(run: Run) -> str:
    """Return the name of the module whose train() trains a Run.

    Estimators and networks have different ones, loaded by this name, so that editing one retrains
    nothing of the other.
    """
    return "allcores_study.training." + ("estimators" if run.is_estimator else "loop")


def may_be_stacked(run: Run) -> bool:
    """Return whether the network of a Run may be stacked: see stacking/stacks.py.

    A built-in model's file says so by its constant MAY_BE_STACKED.
    """
    is_own = ":" in run.model.name
    return run.may_be_stacked and (is_own or "MAY_BE_STACKED" in models()[run.model.name].constants)


def metric(name: str) -> Component:
    """Return the Component of a metric, by name or import path; raises as model() does."""
    return component.imported(name, "metrics") if ":" in name else metrics()[name]


def loss(name: str) -> Component:
    """Return the Component of a loss, by name or import path; raises as model() does."""
    return component.imported(name, "losses") if ":" in name else losses()[name]


def paths(dataset: Entry) -> dict[str, str]:
    """Return option -> path of the files and folders that a dataset is made from."""
    values = {key: dataset.options.get(key) for key in path_keys(dataset.name)}
    return {key: value for key, value in values.items() if isinstance(value, str)}


def path_keys(name: str) -> tuple[str, ...]:
    """Return the options of a dataset that are files or folders."""
    return datasets()[name].constants.get("PATHS", ("path",)) if name in datasets() else ()


def task(dataset: Entry) -> Component:
    """Return the Component of a dataset's task."""
    usual = datasets()[dataset.name].constants.get("TASK", "classification")
    return tasks()[dataset.options.get("task", usual)]


def facts(dataset: Entry) -> Any:
    """Return the Facts of a dataset, or None: see data.preparation.facts(), loaded by this name."""
    return importlib.import_module("allcores_study.data.preparation").facts(dataset)


def canonical(name: Any, known: Iterable[str]) -> str | None:
    """Return the key of `known` that `name` means: CrossEntropyLoss for cross_entropy."""

    def plain(text: str) -> str:
        return text.lower().replace("_", "").removesuffix("loss")

    return next((key for key in known if plain(key) == plain(str(name))), None)


def _installed(package: str) -> Path:
    return Path(importlib.util.find_spec(package).submodule_search_locations[0])  # type: ignore[union-attr, index]
