"""The components that a config can name, read from their files without importing them.

Reading syntax trees instead of importing keeps torch out of the Snakefile: a dry run starts fast.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import importlib
import pkgutil
import sys
import sysconfig
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allcores_study.config.options import check, choices
from allcores_study.programs import PROGRAMS, users_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeVar

    from allcores_study.yaml_files import Keys, Problem

    Definition = ast.FunctionDef | ast.ClassDef
    Kind = TypeVar("Kind", bound=Definition)
    # Where a name in a module comes from, see _origins().
    Origin = Definition | tuple[str, str] | None

# The arguments of a model that are taken from the data.
DECIDED_BY_DATA = frozenset({"shape", "channels", "image_size", "classes", "vocabulary"})
# The arguments that the project itself passes to each kind of component; all others are options.
SUPPLIED = {
    "strategies": {"self", "model", "make_optimizer", "world"},
    "datasets": {"folder"},
    "models": {"self", *DECIDED_BY_DATA},
    "estimators": {"self", "n_jobs", "random_state"},
    "metrics": {"true", "predicted", "probabilities"},
    "augmentations": {"inputs", "generator"},
    "tasks": {"self", "outputs"},
    "schedules": {"optimizer", "total_steps"},
    "optimizers": {"self", "params"},
    # Ignored samples (ignore_index) would count in the batch sizes that weight the workers' means.
    "losses": {"self", "reduction", "reduce", "size_average", "ignore_index", "pos_weight"}
    | {"scores", "targets"},
}
# The methods of scikit-learn's estimators, and that of networks, which may also have the others.
FIT, FORWARD = {"fit", "predict"}, "forward"
# The arguments of a class without an __init__; for other kinds any option is accepted.
INHERITED = {"strategies": "self, model, make_optimizer, world", "tasks": "self, outputs"}


@dataclass(frozen=True)
class Component:
    """A model, dataset, schedule, strategy, optimizer or loss that a config can name.

    Attributes:
        module, attribute: where load() imports it from.
        options: option -> its default, or ... if it has none; None: any option is accepted.
        arguments: names of all its parameters; None: unknown without importing it.
        positional: how many of them may be given by position; None: unknown, or any number.
        constants: name -> value of the literals assigned in its file and class, and of the keyword
            arguments of its decorators.
        is_estimator: whether it is an estimator with scikit-learn's interface, not a network.
        supplied: arguments of a model that are taken from the data unless its entry sets them.
    """

    name: str
    module: str
    attribute: str
    file: Path
    options: dict[str, Any] | None
    arguments: frozenset[str] | None
    constants: dict[str, Any]
    is_estimator: bool = False
    supplied: frozenset[str] = frozenset()
    positional: int | None = None

    def problems(
        self, path: Keys, options: dict[str, Any], other_keys: Iterable[str] = ()
    ) -> Iterable[Problem]:
        """Return what does not fit its signature, see allcores_study.config.options.check()."""
        if self.options is None:
            return ()
        given = {key: value for key, value in options.items() if key not in self.supplied}
        return check(path, given, self.options, self.constants.get("ALLOWED", {}), other_keys)

    def unknown(self, options: Iterable[str]) -> set[str]:
        """Return those of some options that its signature does not have."""
        return set() if self.options is None else {*options} - {*self.options} - self.supplied

    def load(self) -> Any:
        """Import and return the function or class itself."""
        with users_module(self.module):
            return getattr(importlib.import_module(self.module), self.attribute)


@functools.cache
def parse(file: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(file.read_bytes(), str(file))


def _literals(body: list[ast.stmt]) -> dict[str, Any]:
    constants = {}
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        is_assigned = isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        if is_assigned and isinstance(targets[0], ast.Name):
            with contextlib.suppress(ValueError):
                constants[targets[0].id] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
    return constants


def _decorations(node: Definition) -> dict[str, Any]:
    """Return name -> value of the literal keyword arguments of a function's decorators."""
    calls = [item for item in node.decorator_list if isinstance(item, ast.Call)]
    keywords: list[Any] = [keyword for call in calls for keyword in call.keywords]
    literals = ast.Constant | ast.Tuple
    return {k.arg: ast.literal_eval(k.value) for k in keywords if isinstance(k.value, literals)}


def _signature(kind: str, node: Definition) -> ast.arguments:
    """Return the arguments of a function or of a class's __init__, which may be inherited."""
    if isinstance(node, ast.FunctionDef):
        return node.args
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return item.args
    return ast.parse(f"def __init__({INHERITED.get(kind, '**anything')}): pass").body[0].args  # type: ignore[attr-defined]


def _default(node: ast.expr | None) -> Any:
    try:
        return ast.literal_eval(node) if node is not None else ...
    except ValueError:
        assert node is not None
        return ast.unparse(node)


def read(kind: str, name: str, module: str, file: Path, node: Definition) -> Component:
    """Return the Component that a node of a file's syntax tree defines.

    Args:
        kind: key of SUPPLIED.
    """
    args = _signature(kind, node)
    positional = args.posonlyargs + args.args
    defaults = [None] * (len(positional) - len(args.defaults)) + args.defaults
    if isinstance(node, ast.ClassDef):
        positional, defaults = positional[1:], defaults[1:]  # self, whatever it is called
    defaults_of = dict(
        zip([a.arg for a in positional + args.kwonlyargs], defaults + args.kw_defaults, strict=True)
    )
    return Component(
        name=name,
        module=module,
        attribute=node.name,
        file=file,
        options=None
        if args.kwarg
        else {k: _default(v) for k, v in defaults_of.items() if k not in SUPPLIED[kind]},
        arguments=frozenset(defaults_of),
        constants=_literals(parse(file).body)
        | (_literals(node.body) if isinstance(node, ast.ClassDef) else {})
        | _decorations(node),
        supplied=frozenset(defaults_of) & DECIDED_BY_DATA if kind == "models" else frozenset(),
        positional=None if args.vararg else len(positional),
    )


def public(file: Path, kind: type[Kind]) -> list[Kind]:
    """Return the public definitions of one kind in a file."""
    return [
        node
        for node in parse(file).body
        if isinstance(node, kind) and not node.name.startswith("_")
    ]


def literals_of(file: Path) -> dict[str, Any]:
    """Return name -> value of the constants in a file that are literals."""
    return _literals(parse(file).body)


def arguments_of(file: Path) -> dict[str, list[str]]:
    """Return the argument names of each public function in a file, by its name."""
    return {
        node.name: [argument.arg for argument in node.args.args]
        for node in public(file, ast.FunctionDef)
    }


@functools.cache
def source_of(module: str) -> Path | None:
    """Return the file of an importable module, found without importing it; None: none."""
    importlib.invalidate_caches()
    name = ""
    spec: ModuleSpec | None = None
    places: Sequence[str] | None = None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        if spec and places is None:
            return None
        spec = _spec(name, places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    file = Path(spec.origin) if spec.has_location else None  # type: ignore[union-attr, arg-type]
    is_source = file is not None and file.suffix == ".py" and file.is_file()
    # Our programs are in a folder of sys.path but are not modules.
    return file if is_source and file.parent != PROGRAMS else None  # type: ignore[union-attr]


def _spec(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    """Return the ModuleSpec of a module from the finders that `import` asks; None: it has none.

    Args:
        places: of its package; None: sys.path.
    """
    # What is on the path comes first: other finders may do more than look. PathFinder itself cannot
    # look into a folder without __init__.py inside a package that is not imported.
    folders: list[str] = []
    for place in sys.path if places is None else places:
        importer = pkgutil.get_importer(place or str(Path.cwd()))
        spec = importer and importer.find_spec(name)
        if spec and spec.loader:
            return spec
        folders += (spec and spec.submodule_search_locations) or []
    if folders:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = folders
        return spec
    finder: Any
    for finder in sys.meta_path:
        if spec := finder.find_spec(name, places):
            return spec
    return None


@functools.cache
def imported(path: str, kind: str = "models") -> Component:
    """Return the Component at an import path such as "my_package.nets:Net".

    Where files do not show the signature (a star import, an inherited __init__), its options are
    None: any option is accepted until it is called.

    Args:
        kind: key of SUPPLIED.

    Raises:
        ValueError: the module does not exist, cannot be read, or does not define the name.
    """
    module, _, attribute = path.partition(":")
    if not attribute.isidentifier() or not all(map(str.isidentifier, module.split("."))):
        raise ValueError(f"{path} is not an import path; expected package.module:Name")
    file = source_of(module)
    if file is None:
        raise ValueError(
            f"{path} cannot be imported; expected package.module:Name, without .py, and the "
            f"package in {Path.cwd()} or on PYTHONPATH"
        )
    defined_in, node = _definition(module, attribute)
    methods = set(_methods(defined_in, node)) if isinstance(node, ast.ClassDef) else set()
    is_estimator = methods >= FIT and FORWARD not in methods
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        is_estimator |= literals_of(source_of(defined_in)).get("IS_ESTIMATOR", False)  # type: ignore[arg-type]
    if isinstance(node, ast.FunctionDef) or (node and _has_init(node)):
        found = read("estimators" if is_estimator else kind, path, module, file, node)
        return dataclasses.replace(found, attribute=attribute, is_estimator=is_estimator)
    return Component(path, module, attribute, file, None, None, {}, is_estimator)


def is_estimator(entry: dict[str, Any]) -> bool:
    """Return whether a model's entry names an estimator with scikit-learn's interface.

    That is a class with fit() and predict(), or a function in a file with the constant
    IS_ESTIMATOR.
    """
    path = entry.get("import")
    try:
        return isinstance(path, str) and imported(path).is_estimator
    except ValueError:  # reported where the entry is checked
        return False


def _methods(module: str, node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of the methods of a class, and of its bases as far as files show them.

    Args:
        module: the one that defines the class.
    """
    yield from (item.name for item in node.body if isinstance(item, ast.FunctionDef))
    for base in node.bases:
        if isinstance(base, ast.Name):
            with contextlib.suppress(ValueError):  # such as of a builtin class
                defined_in, found = _definition(module, base.id)
                if isinstance(found, ast.ClassDef) and found is not node:
                    yield from _methods(defined_in, found)


def _definition(
    module: str, name: str, visited: frozenset[tuple[str, str]] = frozenset()
) -> tuple[str, Definition | None]:
    """Return (module, statement) that define a name, in its module or where that imports it.

    The statement is None where files do not show it.

    Raises:
        ValueError: a file has a syntax error, or does not define the name.
    """
    file = source_of(module)
    if file is None or (module, name) in visited:
        return module, None
    try:
        tree = parse(file)
    except (SyntaxError, ValueError) as error:  # ValueError: null bytes
        raise ValueError(f"{module}:{name} cannot be imported: {file}: {error}") from None
    origins, unclear = _origins(module, file.stem == "__init__", tree)
    if name not in origins and not unclear:
        public = [public_name for public_name in origins if not public_name.startswith("_")]
        raise ValueError(f"{module}:{name}: {file} defines no {name}; {choices(name, public)}")
    entry = origins.get(name)
    if isinstance(entry, tuple):
        return _definition(*entry, visited | {(module, name)})
    return module, entry


@functools.cache
def _origins(module: str, is_package: bool, tree: ast.Module) -> tuple[dict[str, Origin], bool]:
    """Return where each name in a module comes from, and whether it may have further names.

    The origin is its statement, or the (module, name) that it is imported from; None: unclear.
    """
    origins: dict[str, Origin] = {}
    unclear = False
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            origins.setdefault(node.name, None)  # perhaps inside another statement
            unclear |= node.name == "__getattr__"
        elif isinstance(node, ast.ImportFrom):
            unclear |= any(alias.name == "*" for alias in node.names)
            package = module if is_package else module.rpartition(".")[0]
            parent = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(filter(None, [parent, node.module]))
            origins |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            origins[node.id] = None
    origins |= {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    return origins, unclear


def _has_init(node: ast.ClassDef) -> bool:
    return any(isinstance(item, ast.FunctionDef) and item.name == "__init__" for item in node.body)


def _arrange_path() -> None:
    """Put the user's modules before installed ones on sys.path, and our programs last.

    The user's modules are in the working directory; a program is, for example, train.py.
    """
    if str(Path.cwd()) not in sys.path:
        packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        places = (at for at, entry in enumerate(sys.path) if entry in packages)
        sys.path.insert(next(places, len(sys.path)), str(Path.cwd()))
    if str(PROGRAMS) in sys.path:
        sys.path.remove(str(PROGRAMS))
        sys.path.append(str(PROGRAMS))


_arrange_path()
