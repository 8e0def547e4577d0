"""A hash of the code that a run depends on: rerun what a change can change, nothing else."""

import ast
import functools
import hashlib
from pathlib import Path

from allcores import registry

# Where the code that makes a result begins; what these import, directly or not, counts too.
ROOTS = ("training", "evaluation", "launch", "lean_torch")


def of_run(run):
    """The fingerprint of the code behind a Run: the loop and all that it imports, its model, its
    strategy. Comments, formatting and docstrings do not count."""
    files = (registry.strategies()[run.strategy.name].file, registry.model(run.model.name).file)
    return _of_files(tuple(registry.LIBRARY / f"{name}.py" for name in ROOTS) + files)


def identity(run):
    """All that decides what a Run ends with, but for the data: its settings and its code."""
    return f"{run.to_json()} {of_run(run)}"


def of_recipe(run):
    """The fingerprint of the code that measures how a Run's model is fastest."""
    return _of_files((registry.LIBRARY / "recipes.py", registry.model(run.model.name).file))


def of_dataset(name):
    """The fingerprint of the code that prepares a dataset."""
    return _of_files((registry.LIBRARY / "data.py", registry.datasets()[name].file))


def of_script(name):
    """The fingerprint of scripts/<name>.py and what it imports."""
    return _of_files((registry.LIBRARY.parent / f"{name}.py",))


@functools.cache
def _of_files(files):
    digest = hashlib.sha256()
    for file in sorted(_closure(files), key=lambda file: file.name):
        digest.update(f"{file.name} {_of_code(file)}\n".encode())
    return f"code {digest.hexdigest()[:16]}"


@functools.cache
def _of_code(file):
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_docstring(body[0]):
            del body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_docstring(node):
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _closure(files):
    """The files and all modules of this library or of the user that they import."""
    found, waiting = set(), list(files)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imports(file)
    return found


@functools.cache
def _imports(file):
    candidates = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            candidates += [root / _path(alias.name) for alias in node.names for root in _roots()]
        elif isinstance(node, ast.ImportFrom):
            roots = [file.parents[node.level - 1]] if node.level else _roots()
            modules = [f"{node.module or ''}.{alias.name}".strip(".") for alias in node.names]
            modules += [node.module] if node.module else []
            candidates += [root / _path(module) for module in modules for root in roots]
    return [candidate for candidate in candidates if candidate.is_file()]


def _roots():
    return registry.LIBRARY.parent, Path.cwd()


def _path(module):
    return f"{module.replace('.', '/')}.py"
