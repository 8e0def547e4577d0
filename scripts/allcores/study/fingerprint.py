"""A hash of the code that a result depends on, so that an edit reruns only what it can change.

Of this library the hash covers each function, class or constant that a run can reach, not whole
files: a new schedule retrains nothing. A definition reaches the names in it, what those reach, and
so on; a class is hashed as a whole. Of the user's own modules, which may do anything, every file
that a model imports is hashed. Comments, formatting and docstrings are ignored.
"""

import ast
import functools
import hashlib
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from allcores.study import registry

PACKAGE = "allcores"
# Statements of a module that are no definitions: whoever imports it runs them.
EFFECTS = ""
# What watches, names, places or ends a run and has no part in its numbers. study/run.py has: it
# says which fold is held out, and how many epochs are trained.
WITHOUT_PART = (
    f"{PACKAGE}.machine.",
    *(
        f"{PACKAGE}.study.{name}"
        for name in ("conditions", "fingerprint", "identity", "registry", "results_folder")
    ),
    f"{PACKAGE}.files",
    *(f"{PACKAGE}.parallel.{name}" for name in ("failures", "heartbeat", "supervision")),
    *(f"{PACKAGE}.training.{name}" for name in ("checkpoints", "progress")),
)


def of_run(run):
    """The fingerprint of the code behind a Run: conduct(), its model, schedule and strategy."""
    return _of(_roots_of_run(run), run.model.name)


def covered_by_run(run):
    """(module, name) -> hash of every definition that the fingerprint of a Run covers."""
    return _covered(_roots_of_run(run), run.model.name)


def _roots_of_run(run):
    parts = registry.strategies()[run.strategy.name], registry.schedules()[run.schedule.name]
    roots = [(f"{PACKAGE}.training.experiment", "conduct")]
    return (*roots, *((part.module, part.attribute) for part in parts))


def of_recipe(run):
    """The fingerprint of the code that measures how a Run's model is fastest."""
    return _of(((f"{PACKAGE}.training.recipes", "calibrate"),), run.model.name)


def of_dataset(name):
    """The fingerprint of the code that prepares a dataset."""
    return _of(((registry.datasets()[name].module, "load"), (f"{PACKAGE}.data.storage", "write")))


@functools.cache
def of_script(name, *modules):
    """The fingerprint of scripts/<name>.py, modules that it loads by name, and all they reach."""
    script = _Module.read(name, registry.LIBRARY.parent / f"{name}.py")
    nodes = [node for nodes in script.definitions.values() for node in nodes]
    roots = [*_references(script, nodes), *((module, None) for module in modules)]
    return _digest(_reached(roots) | {(name, "*"): _hash(nodes)})


@functools.cache
def _of(roots, model=None):
    """The fingerprint of what is reached from (module, name) pairs and of a model by name."""
    return _digest(_covered(roots, model))


def _covered(roots, model):
    own = {}
    if model is not None:
        component = registry.model(model)
        if component.module.startswith(f"{PACKAGE}."):
            roots = (*roots, (component.module, component.attribute))
        else:
            own = _of_own_modules(component.module)
    return _reached(roots) | own


def _digest(found):
    lines = (f"{module} {name} {digest}\n" for (module, name), digest in sorted(found.items()))
    return f"code {hashlib.sha256(''.join(lines).encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class _Module:
    """A parsed file: its definitions by name, and what its imports stand for.

    Attributes:
        name: of the module.
        definitions: name -> the statements that define it; EFFECTS -> all that define nothing.
        imports: name -> (module, name in it; None: the module itself).
    """

    name: str
    definitions: dict
    imports: dict

    @classmethod
    def read(cls, module, file):
        tree = _parse(file)
        definitions = {}
        for node in tree.body:
            for name in _defined(node):
                definitions.setdefault(name, []).append(node)
        return cls(module, definitions, _imports(tree, module, file.stem == "__init__"))


def _defined(node):
    """The names that a statement of a module defines; none for docstrings and imports."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) for t in node.targets):
        return [target.id for target in node.targets]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return [] if isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node) else [EFFECTS]


def _imports(tree, module, is_package):
    """What each imported name stands for, wherever in the file it is imported."""
    found = {}
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname or "." not in alias.name:
                    found[alias.asname or alias.name] = (alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - max(node.level - 1, 0)]
            source = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                target = (whole, None) if _file(whole) else (source, alias.name)
                found[alias.asname or alias.name] = target
    return found


@functools.cache
def _file(module):
    """The file of a module of this library; None: it is another's."""
    if module != PACKAGE and not module.startswith(f"{PACKAGE}."):
        return None
    stem = registry.LIBRARY.parent.joinpath(*module.split("."))
    return next((f for f in (stem.with_suffix(".py"), stem / "__init__.py") if f.is_file()), None)


@functools.cache
def _module(module):
    return _Module.read(module, _file(module))


def read_ahead(modules):
    """Parse those modules of this library, for the processes that are forked from this one."""
    for module in filter(_file, modules):
        _module(module)


def _reached(roots):
    """(module, name) -> hash, of every definition of this library that the roots lead to."""
    found, waiting = {}, list(roots)
    while waiting:
        module, name = waiting.pop()
        if (module, name) in found or module.startswith(WITHOUT_PART) or not _file(module):
            continue
        source = _module(module)
        if name is None:  # the module as a value: anything in it may be meant
            waiting += [(module, each) for each in source.definitions]
        elif name in source.definitions or name == EFFECTS:
            found[module, name], references = _definition(module, name)
            waiting += references
        elif name in source.imports:
            waiting.append(source.imports[name])
    return found


@functools.cache
def _definition(module, name):
    """(the hash of what a name of a module of this library is, what that leads to)."""
    source = _module(module)
    nodes = source.definitions.get(name, [])
    effects = [(each, EFFECTS) for each in (*_packages(module), module)]
    return _hash(nodes), list(dict.fromkeys([*_references(source, nodes), *effects]))


def _packages(module):
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _references(source, nodes):
    """The (module, name) pairs of this library that statements of a module mention."""
    found = []
    for base, attribute in (pair for node in nodes for pair in _names(node)):
        module, name = source.imports.get(base, (source.name, base))
        if name is None and attribute:  # an attribute of an imported module
            submodule = f"{module}.{attribute}"
            module, name = (submodule, None) if _file(submodule) else (module, attribute)
        found.append((module, name))
    return found


def _names(statement):
    """(name, None), and (name, attribute) for name.attribute, wherever in a statement."""
    nodes = list(ast.walk(statement))
    dotted = [n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    bases = {id(node.value) for node in dotted}
    yield from ((node.value.id, node.attr) for node in dotted)
    yield from ((n.id, None) for n in nodes if isinstance(n, ast.Name) and id(n) not in bases)


def _hash(nodes):
    """The SHA-256 of the syntax trees of statements."""
    return hashlib.sha256("\n".join(map(ast.dump, nodes)).encode()).hexdigest()


def _parse(file):
    """The syntax tree of a file, without docstrings."""
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            del body[0]
    return tree


def _is_text(node):
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _of_own_modules(module):
    """(module, "*") -> hash, of a user's module and all that it imports which is not installed."""
    found, waiting = {}, [*_packages(module), module]
    while waiting:
        name = waiting.pop()
        file = registry.source_of(name)
        if (name, "*") in found or file is None or _is_installed(file):
            continue
        try:
            tree = _parse(file)
        except (SyntaxError, ValueError):  # whoever imports it may be prepared for that
            found[name, "*"] = hashlib.sha256(file.read_bytes()).hexdigest()
            continue
        found[name, "*"] = _hash(tree.body)
        for target, part in _imports(tree, name, file.stem == "__init__").values():
            candidates = [target] if part is None else [target, f"{target}.{part}"]
            waiting += [each for c in candidates for each in (*_packages(c), c)]
        for node in ast.walk(tree):  # import a.b binds a only
            if isinstance(node, ast.Import):
                waiting += [each for a in node.names for each in (*_packages(a.name), a.name)]
    return found


def _is_installed(file):
    """Whether a file came with Python or a package manager: its version is what identifies it."""
    roots = {Path(root).resolve() for root in (*sysconfig.get_paths().values(), sys.base_prefix)}
    roots -= {Path("/"), Path("/usr")}
    return "site-packages" in file.parts or any(file.is_relative_to(root) for root in roots)
