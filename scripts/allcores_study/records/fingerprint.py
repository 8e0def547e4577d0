"""A hash of the code that a result depends on, so that an edit reruns only what uses the file.

A fingerprint covers whole files: those of this library that a run imports, directly or through
others, and those of a user that it names. Comments, formatting and docstrings do not count. What a
user's modules import cannot all be read from their files (the name of a module may be computed), so
a run also records the files that its process had loaded when it ended: see loaded().

Parsed files are kept in the user's cache, because parsing them all takes half a second.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores import files
from allcores_study import programs
from allcores_study.config import component, registry

if TYPE_CHECKING:
    from allcores_study.config.run import Entry, Run

STUDY = "allcores_study"
# Modules that watch, name, place or end a run and do not affect its numbers. config/run.py does: it
# decides which fold is held out. With the dots, no other name begins with one of these.
EXCLUDED = (
    "allcores.machine.",
    "allcores.files.",
    "allcores.version.",
    "allcores_study.config.component.",
    "allcores_study.records.fingerprint.",
    "allcores_study.records.identity.",
    "allcores_study.config.registry.",
    "allcores_study.records.results_folder.",
    "allcores_study.records.run_files.",
    "allcores.parallel.clock.",
    "allcores.parallel.reports.",
    "allcores.parallel.supervision.",
    "allcores_study.training.checkpoints.",
    "allcores_study.training.progress.",
)


_when_loaded: dict[str, str | None] = {}  # see loaded()


def of_run(run: Run) -> str:
    """Return the fingerprint of a Run's code: training, model, task, schedule and strategy."""
    return _digest(files_of_run(run))


def files_of_run(run: Run) -> dict[str, str]:
    """Return module -> hash of every file that the fingerprint of a Run covers."""
    parts: tuple[component.Component, ...]
    parts = registry.strategies()[run.strategy.name], registry.schedules()[run.schedule.name]
    parts += (registry.model(run.model.name), registry.loss(run.loss.name))
    if run.augmentation:
        parts += (component.imported(run.augmentation.name, "augmentations"),)
    parts += (registry.task(run.dataset),)
    modules = {part.module for part in parts} | {registry.trainer(run)}
    stacking = [f"{STUDY}.stacking.stacks"] if registry.may_be_stacked(run) else []
    return _reached(f"{STUDY}.training.experiment", *stacking, *sorted(modules))


def of_smoke_test(run: Run) -> str:
    """Return the fingerprint of the code that a smoke test of a Run's model runs."""
    modules = [part.module for part in (registry.model(run.model.name), registry.task(run.dataset))]
    return _digest(_reached(f"{STUDY}.planning.trials", *modules))


def of_dataset(dataset: Entry) -> str:
    """Return the fingerprint of the code that prepares the dataset of an Entry."""
    modules = registry.datasets()[dataset.name].module, registry.task(dataset).module
    return _digest(_reached(*modules, f"{STUDY}.data.storage"))


def of_choice() -> str:
    """Return the fingerprint of the code that chooses between candidates."""
    return _digest(_reached(f"{STUDY}.training.choosing"))


def of_metric(name: str) -> str:
    """Return the fingerprint of a metric: of the file that defines it."""
    module = registry.metric(name).module
    return _digest({module: _contents(registry.metric(name).file)["hash"]})


def of_folds() -> str:
    """Return the fingerprint of the code that assigns samples to folds."""
    return _digest(_reached(f"{STUDY}.data.folds"))


def of_script(name: str, *modules: str) -> str:
    """Return the fingerprint of scripts/<name>.py and everything that it imports.

    Args:
        modules: those that it loads by name, which may be the user's.
    """
    program = _contents(programs.PROGRAMS / f"{name}.py")
    imported = [module for module in _targets(name, False, program) if programs.is_ours(module)]
    return _digest(_reached(*sorted({*imported, *modules})) | {name: program["hash"]})


def loaded() -> dict[str, str | None]:
    """Return the hashes of the user's loaded modules, and the versions of what they import.

    The keys are files, and names of installed packages. Files in the working directory, or beside
    it, are named relative to it; a link by its own name.

    A hash is taken when this process, or the one that it was forked from, first sees the module
    loaded, because the file may be edited later.
    """
    files = _users_files(frozenset(sys.modules), Path.cwd())
    for name, file in files.items():
        if name not in _when_loaded and file.is_file():
            _when_loaded[name] = _hash(file)
    _cache().save()
    hashes = {name: _when_loaded[name] for name in files if name in _when_loaded}
    # Also those that this process had imported before the user's module did.
    imports = [
        one for file in files.values() if file.is_file() for one in _contents(file)["imports"]
    ]
    named = {source.partition(".")[0] for dots, source, _ in imports if not dots}
    packages = frozenset(programs.brought | {name for name in named if name in sys.modules})
    return hashes | {name: _version(name) for name in _distributions(packages)}


@functools.cache
def _distributions(packages: frozenset[str]) -> set[str]:
    """Return the names of the installed distributions that these packages belong to.

    torch is left out, because it is already part of what identifies a run.
    """
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in packages}
    foreign = [
        name
        for name, file in files.items()
        if file and is_installed(file) and name not in {*sys.stdlib_module_names, "torch"}
    ]
    if not foreign:  # building the table takes 0.2 s
        return set()
    table = importlib.metadata.packages_distributions()
    return {distribution for name in foreign for distribution in table.get(name, ())}


@functools.cache
def _version(distribution: str) -> str | None:
    """Return a version without a build suffix such as +cpu; None: it is not installed."""
    try:
        return importlib.metadata.version(distribution).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.lru_cache(maxsize=8)
def _users_files(modules: frozenset[str], folder: Path) -> dict[str, Path]:
    """Return name -> file, as in loaded(), of those modules that are the user's."""
    places = {getattr(sys.modules[name], "__file__", None) or "" for name in modules}
    # Filtered before they become paths: torch has thousands, and nearly all are installed.
    users = {
        Path(place).absolute()
        for place in places
        if place.endswith(".py") and not is_installed(place)
    }
    places_of_ours = programs.PROGRAMS, registry.ENGINE, registry.LIBRARY
    ours = [place.resolve() for place in places_of_ours]
    return {
        os.path.relpath(file) if file.is_relative_to(folder.parent) else str(file): file
        for file in sorted(users)
        if not is_installed(file) and not any(map(file.resolve().is_relative_to, ours))
    }


def changed(loaded_files: dict[str, str | None]) -> list[str]:
    """Return which of the files and packages from loaded() are gone or different now."""
    return [
        name
        for name, digest in loaded_files.items()
        if (_hash(Path(name)) if name.endswith(".py") else _version(name)) != digest
    ]


def _hash(file: Path) -> str | None:
    """Return the hash of a file; None: it is gone."""
    try:
        return _contents(file)["hash"]
    except OSError:
        return None


def _digest(hashes: dict[str, str]) -> str:
    lines = (f"{module} {digest}\n" for module, digest in sorted(hashes.items()))
    return f"code {hashlib.sha256(''.join(lines).encode()).hexdigest()[:16]}"


@functools.cache
def _reached(*modules: str) -> dict[str, str]:
    """Return module -> hash of the files of these modules and of what our modules import."""
    hashes, waiting = {}, [name for module in modules for name in _with_packages(module)]
    while waiting:
        module = waiting.pop()
        file = _file(module)
        if module in hashes or file is None or f"{module}.".startswith(EXCLUDED):
            continue
        contents = _contents(file)
        hashes[module] = contents["hash"]
        if (compiled := file.with_suffix(".c")).is_file():  # that the module calls
            hashes[f"{module}.c"] = _contents(compiled)["hash"]
        if programs.is_ours(module):  # what a user's module imports is in loaded()
            targets = _targets(module, file.stem == "__init__", contents)
            waiting += filter(programs.is_ours, targets)
    _cache().save()
    return {module: digest for module, digest in hashes.items() if digest}


@functools.cache
def _file(module: str) -> Path | None:
    """Return the file of a module of this library or of the user's; None: it is neither."""
    if programs.is_ours(module):
        stem = registry.LIBRARY.parent.joinpath(*module.split("."))
        candidates = stem.with_suffix(".py"), stem / "__init__.py"
        return next((file for file in candidates if file.is_file()), None)
    file = component.source_of(module)
    return None if file is None or is_installed(file) else file


def _with_packages(module: str) -> list[str]:
    """Return a module and its parent packages, whose files run when it is imported."""
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _targets(module: str, is_package: bool, contents: dict[str, Any]) -> list[str]:
    """Return the names that a file may import: modules, and some names in a module."""
    package = (module if is_package else module.rpartition(".")[0]).split(".")
    targets = []
    for dots, source, names in contents["imports"]:
        parents = package[: len(package) - dots + 1] if dots else []
        origin = ".".join(filter(None, [*parents, source]))
        for target in [origin, *(f"{origin}.{name}" for name in names)]:
            targets += _with_packages(target)
    return list(dict.fromkeys(targets))


def _contents(file: Path) -> dict[str, Any]:
    return _cache().of(file)


@functools.cache
def _cache() -> files.KeptDigests:
    """Return the cache of _parsed(), for this version of Python and of this file.

    Each copy of the library has its own: every run reads it, and a shared one would grow.
    """
    copy = hashlib.sha256(str(registry.LIBRARY).encode()).hexdigest()[:8]
    name = f"code-{sys.hexversion:x}-{files.sha256(__file__)[:8]}-{copy}.json"
    return files.KeptDigests(files.cache_folder() / name, _parsed)


def _parsed(path: str) -> dict[str, Any]:
    """Return the hash and the imports of a file, in a form that JSON can hold.

    Returns:
        {"hash": of its syntax tree, "" if it has only comments and docstrings; "imports": [[number
        of dots of a relative import, module, names in it], ...], wherever they are.}
    """
    content = Path(path).read_bytes()
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # its importer may handle that
        return {"hash": hashlib.sha256(content).hexdigest(), "imports": []}
    tree.body = [part for statement in tree.body for part in _what_runs(statement)]
    imports = []
    for node in ast.walk(tree):
        if isinstance(getattr(node, "body", None), list):
            node.body = [statement for statement in node.body if not _is_text(statement)]  # type: ignore[attr-defined]
        if isinstance(node, ast.Import):
            imports += [[0, alias.name, []] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append([node.level, node.module, [alias.name for alias in node.names]])
    text = "\n".join(map(ast.dump, tree.body))
    return {"hash": text and hashlib.sha256(text.encode()).hexdigest(), "imports": imports}


def _what_runs(statement: Any) -> list[ast.stmt]:
    """Return a statement as a list; for `if TYPE_CHECKING:` what comes after `else:`."""
    is_if = isinstance(statement, ast.If) and isinstance(statement.test, ast.Name)
    is_for_types = is_if and statement.test.id == "TYPE_CHECKING"
    return statement.orelse if is_for_types else [statement]


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def is_installed(file: str | Path) -> bool:
    """Return whether a file came with Python or a package, whose version identifies it."""
    text = str(file)
    is_package = "/site-packages/" in text or "/dist-packages/" in text
    return is_package or text.startswith(_places_of_installed())


@functools.cache
def _places_of_installed() -> tuple[str, ...]:
    """Return the folders of Python and its packages, with a slash at the end.

    It is not their whole prefix, because a project may lie in its virtual environment.
    """
    paths = sysconfig.get_paths()
    roots = {Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(f"{root}/" for root in roots | {root.resolve() for root in roots})
