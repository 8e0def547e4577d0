"""A hash of the code that a result depends on, so that an edit reruns only what it can change.

In this library the hash covers each function, class or constant that a run can reach, not whole
files: a new schedule retrains nothing. A definition reaches the names in it, what those reach, and
so on; a class is hashed as a whole. The user's modules may do anything, so every file that a
model imports is hashed whole. Comments, formatting and docstrings are ignored.

Parsed files of this library are kept in the user's cache: parsing them all takes half a second.
"""

import ast
import functools
import hashlib
import sys
import sysconfig
from pathlib import Path

from allcores import files
from allcores.study import component, registry

PACKAGE = "allcores"
# The name of a module's statements that define nothing: whoever imports it runs them.
EFFECTS = ""
# Modules that watch, name, place or end a run and do not affect its numbers. study/run.py does: it
# says which fold is held out, and how many epochs are trained.
EXCLUDED = (
    f"{PACKAGE}.machine.",
    f"{PACKAGE}.files",
    f"{PACKAGE}.study.component",
    f"{PACKAGE}.study.conditions",
    f"{PACKAGE}.study.fingerprint",
    f"{PACKAGE}.study.identity",
    f"{PACKAGE}.study.registry",
    f"{PACKAGE}.study.results_folder",
    f"{PACKAGE}.parallel.failures",
    f"{PACKAGE}.parallel.heartbeat",
    f"{PACKAGE}.parallel.messages",
    f"{PACKAGE}.parallel.supervision",
    f"{PACKAGE}.training.checkpoints",
    f"{PACKAGE}.training.progress",
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
    """The fingerprint of the code that measures the fastest recipe for a Run's model."""
    return _of(((f"{PACKAGE}.training.recipes", "calibrate"),), run.model.name)


def of_dataset(name):
    """The fingerprint of the code that prepares a dataset."""
    return _of(((registry.datasets()[name].module, "load"), (f"{PACKAGE}.data.storage", "write")))


@functools.cache
def of_script(name, *modules):
    """The fingerprint of scripts/<name>.py and all it reaches.

    Args:
        modules: those that it loads by name, which may be the user's.
    """
    script = _contents(registry.LIBRARY.parent / f"{name}.py")
    definitions = script["definitions"].items()
    mentioned = [pair for _, (_, names) in definitions for pair in names]
    roots = [*_references(name, script, mentioned), *((module, None) for module in modules)]
    file_hashes = {
        key: digest for module in modules for key, digest in _of_user_modules(module).items()
    }
    file_hashes |= {(name, definition or "*"): digest for definition, (digest, _) in definitions}
    return _digest(_reached(roots) | file_hashes)


@functools.cache
def _of(roots, model=None):
    """The fingerprint of all that (module, name) pairs reach, and of a model, by name."""
    return _digest(_covered(roots, model))


def _covered(roots, model):
    user_hashes = {}
    if model is not None:
        component = registry.model(model)
        roots = (*roots, (component.module, component.attribute))
        user_hashes = _of_user_modules(component.module)
    return _reached(roots) | user_hashes


def _digest(hashes):
    lines = (f"{module} {name} {digest}\n" for (module, name), digest in sorted(hashes.items()))
    return f"code {hashlib.sha256(''.join(lines).encode()).hexdigest()[:16]}"


def _parsed(file):
    """The definitions and imports of a file, as JSON can hold them.

    Returns:
        {"definitions": {name: [hash of the statements that define it, _names() of them]}, with
        EFFECTS for all that define nothing; "imports": {name: [number of dots of a relative import,
        module, name in it; None: the module itself]}}.
    """
    tree = _parse(Path(file))
    statements = {}
    for node in tree.body:
        for name in _defined(node):
            statements.setdefault(name, []).append(node)
    definitions = {name: [_hash(nodes), _names(nodes)] for name, nodes in statements.items()}
    return {"definitions": definitions, "imports": _imports(tree)}


@functools.cache
def _cache():
    """The cache of _parsed(), for this version of Python and of this file.

    Each copy of the library has its own: every run reads it, and one for all would grow.
    """
    copy = hashlib.sha256(str(registry.LIBRARY).encode()).hexdigest()[:8]
    name = f"code-{sys.hexversion:x}-{files.sha256(__file__)[:8]}-{copy}.json"
    return files.KeptDigests(files.cache_folder() / name, _parsed)


def _contents(file):
    return _cache().of(file.resolve())


def _defined(node):
    """The names that a statement of a module defines; none for docstrings and imports."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) for t in node.targets):
        return [target.id for target in node.targets]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return [] if isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node) else [EFFECTS]


def _imports(tree):
    """The origin of each imported name, wherever in the file it is imported; see _parsed()."""
    origins = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname or "." not in alias.name:
                    origins[alias.asname or alias.name] = [0, alias.name, None]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                origins[alias.asname or alias.name] = [node.level, node.module, alias.name]
    return origins


def _target(module, is_package, dots, source, name):
    """(module, name in it; None: the module itself) of an entry of _imports()."""
    package = (module if is_package else module.rpartition(".")[0]).split(".")
    parents = package[: len(package) - max(dots - 1, 0)] if dots else []
    source = ".".join([*parents, *filter(None, [source])])
    submodule = f"{source}.{name}"
    return (submodule, None) if name and _file(submodule) else (source, name)


@functools.cache
def _file(module):
    """The file of a module, if it is of this library; None: it is not."""
    if module != PACKAGE and not module.startswith(f"{PACKAGE}."):
        return None
    stem = registry.LIBRARY.parent.joinpath(*module.split("."))
    return next((f for f in (stem.with_suffix(".py"), stem / "__init__.py") if f.is_file()), None)


@functools.cache
def _module(module):
    """The contents of a module of this library."""
    return _contents(_file(module))


def _reached(roots):
    """(module, name) -> hash of every definition of this library that the roots reach."""
    hashes, waiting = {}, list(roots)
    while waiting:
        module, name = waiting.pop()
        if (module, name) in hashes or module.startswith(EXCLUDED) or not _file(module):
            continue
        source = _module(module)
        if name is None:  # the module as a value: any part of it may be used
            waiting += [(module, definition) for definition in source["definitions"]]
        elif name in source["definitions"] or name == EFFECTS:
            hashes[module, name], references = _definition(module, name)
            waiting += references
        elif name in source["imports"]:
            waiting.append(_imported(module, source, name))
    _cache().save()
    return hashes


@functools.cache
def _definition(module, name):
    """(hash, references) of a name in a module of this library."""
    source = _module(module)
    digest, names = source["definitions"].get(name, (_hash([]), []))
    effects = [(importable, EFFECTS) for importable in (*_packages(module), module)]
    return digest, list(dict.fromkeys([*_references(module, source, names), *effects]))


def _packages(module):
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _imported(module, source, name):
    file = _file(module)
    return _target(module, file is not None and file.stem == "__init__", *source["imports"][name])


def _references(module, source, names):
    """The (module, name) pairs that _names() of statements of a module refer to."""
    references = []
    for base, attribute in names:
        target, name = module, base
        if base in source["imports"]:
            target, name = _imported(module, source, base)
        if name is None and attribute:  # an attribute of an imported module
            submodule = f"{target}.{attribute}"
            target, name = (submodule, None) if _file(submodule) else (target, attribute)
        references.append((target, name))
    return references


def _names(statements):
    """[name, None] for each name in statements, and [name, attribute] for name.attribute."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    dotted = [n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    bases = {id(node.value) for node in dotted}
    pairs = [(node.value.id, node.attr) for node in dotted]
    pairs += [(n.id, None) for n in nodes if isinstance(n, ast.Name) and id(n) not in bases]
    return list(map(list, dict.fromkeys(pairs)))


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


def _of_user_modules(module):
    """(module, "*") -> hash of a user's module and of all modules it imports, unless installed."""
    if module.startswith(f"{PACKAGE}."):
        return {}
    hashes, waiting = {}, [*_packages(module), module]
    while waiting:
        name = waiting.pop()
        file = component.source_of(name)
        if (name, "*") in hashes or file is None or _is_installed(file):
            continue
        try:
            tree = _parse(file)
        except (SyntaxError, ValueError):  # its importer may handle that
            hashes[name, "*"] = hashlib.sha256(file.read_bytes()).hexdigest()
            continue
        hashes[name, "*"] = _hash(tree.body)
        is_package = file.stem == "__init__"
        for entry in _imports(tree).values():
            target, part = _target(name, is_package, *entry)
            candidates = [target] if part is None else [target, f"{target}.{part}"]
            waiting += [
                package
                for candidate in candidates
                for package in (*_packages(candidate), candidate)
            ]
        for node in ast.walk(tree):  # import a.b binds a only
            if isinstance(node, ast.Import):
                waiting += [
                    package
                    for alias in node.names
                    for package in (*_packages(alias.name), alias.name)
                ]
    return hashes


def _is_installed(file):
    """Whether a file came with Python or a package manager: its version identifies it."""
    roots = {Path(root).resolve() for root in (*sysconfig.get_paths().values(), sys.base_prefix)}
    roots -= {Path("/"), Path("/usr")}
    return "site-packages" in file.parts or any(file.is_relative_to(root) for root in roots)
