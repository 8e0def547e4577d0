"""The components that a config may name, read from their files without importing them.

A model is a public function of a file in models/, a strategy or dataset is a file in its folder, a
schedule is a public function of training/schedules.py; optimizers and losses are torch's classes.
Reading syntax trees instead of importing keeps torch out of the Snakefile: a dry run starts fast.
"""

import ast
import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path

LIBRARY = Path(__file__).parents[1]
# The arguments that the project itself passes to each kind of component; all others are options.
SUPPLIED = {
    "strategies": {"self", "model", "make_optimizer", "world"},
    "datasets": {"folder"},
    "models": {"self", "shape", "channels", "image_size", "classes"},
    "metrics": {"true", "predicted", "probabilities"},
    "schedules": {"optimizer", "total_steps"},
    "optimizers": {"self", "params"},
    # Samples with ignore_index would count in the batch sizes that weigh the workers' means.
    "losses": {"self", "reduction", "reduce", "size_average", "ignore_index"},
}
# These need a closure, weights that are matrices, sparse gradients.
UNUSABLE_OPTIMIZERS = {"LBFGS", "Muon", "SparseAdam"}
# These look at a tensor as a whole, not at each of its elements alone.
WHOLE_TENSOR_OPTIMIZERS = {"Adafactor"}


@dataclass(frozen=True)
class Component:
    """A model, dataset, schedule, strategy, optimizer or loss that a config can name.

    Attributes:
        module, attribute: where load() imports it from.
        options: option -> its default, or ... if it has none; None: any option is accepted.
        arguments: names of all its parameters; None: unknown without importing it.
        constants: name -> value of the literals assigned in its file and class, and of the keyword
            arguments of its decorators.
    """

    name: str
    module: str
    attribute: str
    file: Path
    options: dict | None
    arguments: frozenset | None
    constants: dict

    def load(self):
        """The function or class itself."""
        return getattr(importlib.import_module(self.module), self.attribute)


@functools.cache
def _parse(file):
    return ast.parse(file.read_bytes(), str(file))


def _literals(body):
    constants = {}
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError):
                constants[node.targets[0].id] = ast.literal_eval(node.value)
    return constants


def _decorations(node):
    """Name -> value of the literal keyword arguments of a function's decorators."""
    calls = [item for item in node.decorator_list if isinstance(item, ast.Call)]
    keywords = [keyword for call in calls for keyword in call.keywords]
    return {key.arg: key.value.value for key in keywords if isinstance(key.value, ast.Constant)}


def _signature(node, inherited):
    """The arguments of a function or of a class's __init__, which may be inherited."""
    if isinstance(node, ast.FunctionDef):
        return node.args
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return item.args
    return ast.parse(f"def __init__({inherited}): pass").body[0].args


def _default(node):
    try:
        return ast.literal_eval(node) if node is not None else ...
    except ValueError:
        return ast.unparse(node)


def _component(kind, name, module, file, node, inherited="**anything"):
    args = _signature(node, inherited)
    positional = args.posonlyargs + args.args
    defaults = [None] * (len(positional) - len(args.defaults)) + args.defaults
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
        constants=_literals(_parse(file).body)
        | (_literals(node.body) if isinstance(node, ast.ClassDef) else {})
        | _decorations(node),
    )


def _public(file, kind):
    return [
        node
        for node in _parse(file).body
        if isinstance(node, kind) and not node.name.startswith("_")
    ]


def _expected(file, kind, description, name=None):
    """The last public class or function of a file, or the one of that name."""
    nodes = [node for node in _public(file, kind) if name in (None, node.name)]
    if not nodes:
        raise ValueError(f"{file}: expected {description}, found none")
    return nodes[-1]


def files(folder):
    """The files of a folder of the library in which every file is a component."""
    return [
        file
        for file in sorted((LIBRARY / folder).glob("*.py"))
        if not file.stem.startswith("_") and file.stem != "base"
    ]


def literals_of(file):
    """Name -> value of the constants in a file that are literals."""
    return _literals(_parse(file).body)


def arguments_of(file):
    """Name of each public function in a file -> the names of its arguments."""
    return {
        node.name: [argument.arg for argument in node.args.args]
        for node in _public(file, ast.FunctionDef)
    }


@functools.cache
def strategies():
    """Name -> Component: the class in each file of strategies/."""
    return {
        file.stem: _component(
            "strategies",
            file.stem,
            f"allcores.strategies.{file.stem}",
            file,
            _expected(file, ast.ClassDef, "a public class"),
            inherited="self, model, make_optimizer, world",
        )
        for file in files("strategies")
    }


@functools.cache
def datasets():
    """Name -> Component: the function `load` in each file of datasets/."""
    return {
        file.stem: _component(
            "datasets",
            file.stem,
            f"allcores.datasets.{file.stem}",
            file,
            _expected(file, ast.FunctionDef, "a function load()", "load"),
        )
        for file in files("datasets")
    }


@functools.cache
def models():
    """Name -> Component: the public functions in the files of models/."""
    return {
        node.name: _component("models", node.name, f"allcores.models.{file.stem}", file, node)
        for file in files("models")
        for node in _public(file, ast.FunctionDef)
    }


@functools.cache
def schedules():
    """Name -> Component: the public functions of schedules.py."""
    file = LIBRARY / "training" / "schedules.py"
    return {
        node.name: _component("schedules", node.name, "allcores.training.schedules", file, node)
        for node in _public(file, ast.FunctionDef)
    }


@functools.cache
def metrics():
    """Name -> Component: the public functions of measures.py."""
    file = LIBRARY / "analysis" / "measures.py"
    return {
        node.name: _component("metrics", node.name, "allcores.analysis.measures", file, node)
        for node in _public(file, ast.FunctionDef)
    }


@functools.cache
def former_names():
    """Former name of a component -> its name."""
    return literals_of(LIBRARY / "training" / "schedules.py")["FORMER_NAMES"]


@functools.cache
def optimizers():
    """Name -> Component: the classes of torch.optim."""
    folder = _installed("torch") / "optim"
    components = {}
    for node in _parse(folder / "__init__.py").body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("torch.optim."):
            for alias in node.names:
                file = folder / f"{node.module.removeprefix('torch.optim.')}.py"
                classes = {node.name: node for node in _public(file, ast.ClassDef)}
                if alias.name in classes and alias.name not in UNUSABLE_OPTIMIZERS | {"Optimizer"}:
                    components[alias.name] = _component(
                        "optimizers", alias.name, "torch.optim", file, classes[alias.name]
                    )
    return components


@functools.cache
def losses():
    """Name -> Component: torch's losses that compare scores with targets (see losses.py)."""
    usable = literals_of(LIBRARY / "training" / "losses.py")
    names = usable["CLASS_TARGETS"] + usable["NUMBER_TARGETS"] + usable["ONE_HOT_TARGETS"]
    file = _installed("torch") / "nn" / "modules" / "loss.py"
    return {
        node.name: _component("losses", node.name, "torch.nn", file, node)
        for node in _public(file, ast.ClassDef)
        if node.name in names
    }


@functools.cache
def source_of(module):
    """The file of a module that can be imported, found without importing anything; None: none."""
    for root in sys.path:
        stem = Path(root or ".").resolve().joinpath(*module.split("."))
        for file in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
            if file.is_file():
                return file
    return None


@functools.cache
def imported_component(path):
    """The Component at an import path such as "my_package.nets:Net".

    Where the files do not show what a name is (a star import, an inherited __init__), its options
    are None: any option is accepted until it is called.

    Raises:
        ValueError: there is no such module, it cannot be read, or it has no such name.
    """
    module, _, attribute = path.partition(":")
    if not attribute.isidentifier() or not all(map(str.isidentifier, module.split("."))):
        raise ValueError(f"{path} is no import path; expected package.module:Name")
    file = source_of(module)
    if file is None:
        raise ValueError(
            f"{path} cannot be imported; expected package.module:Name, with the package in "
            f"{Path.cwd()} or on PYTHONPATH"
        )
    node = _definition(module, attribute)
    if isinstance(node, ast.FunctionDef) or (node and _has_init(node)):
        component = _component("models", path, module, file, node)
        return dataclasses.replace(component, attribute=attribute)
    return Component(path, module, attribute, file, None, None, {})


def _definition(module, name, visited=frozenset()):
    """The statement that defines a name, in its module or where that imports it; None: unclear.

    Raises:
        ValueError: a file has a syntax error, or no such name.
    """
    file = source_of(module)
    if file is None or (module, name) in visited:
        return None
    try:
        tree = _parse(file)
    except (SyntaxError, ValueError) as error:  # ValueError: null bytes
        raise ValueError(f"{module}:{name} cannot be imported: {file}: {error}") from None
    origins, unclear = {}, False
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            origins.setdefault(node.name, None)  # perhaps inside another statement
            unclear |= node.name == "__getattr__"
        elif isinstance(node, ast.ImportFrom):
            unclear |= any(alias.name == "*" for alias in node.names)
            package = module if file.stem == "__init__" else module.rpartition(".")[0]
            parent = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(filter(None, [parent, node.module]))
            origins |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            origins[node.id] = None
    origins |= {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    if name not in origins and not unclear:
        public = [public_name for public_name in origins if not public_name.startswith("_")]
        raise ValueError(f"{module}:{name}: {file} defines no {name}; it has {', '.join(public)}")
    entry = origins.get(name)
    return _definition(*entry, visited | {(module, name)}) if isinstance(entry, tuple) else entry


def _has_init(node):
    return any(isinstance(item, ast.FunctionDef) and item.name == "__init__" for item in node.body)


def model(name):
    """The Component of a model, by name or import path.

    Raises:
        KeyError: there is no such built-in model.
        ValueError: the import path is wrong, see imported_component().
    """
    return imported_component(name) if ":" in name else models()[name]


def metric(name):
    """The Component of a metric, by name or import path; raises as model() does."""
    return imported_component(name) if ":" in name else metrics()[name]


def is_regression(dataset):
    """Whether the targets of a dataset's Choice are numbers, not classes."""
    default = datasets()[dataset.name].constants.get("TASK", "classification")
    return dataset.options.get("task", default) == "regression"


def metadata(dataset):
    """The data.storage.Metadata of a dataset's Choice, without loading images; None: unknown."""
    return _metadata(dataset.name, json.dumps(dataset.options, sort_keys=True))


@functools.cache
def _metadata(name, options):
    module = importlib.import_module(datasets()[name].module)
    return module.metadata(**json.loads(options))


def canonical(name, known):
    """The key of `known` that `name` means, such as CrossEntropyLoss for cross_entropy."""

    def plain(text):
        return text.lower().replace("_", "").removesuffix("loss")

    return next((key for key in known if plain(key) == plain(str(name))), None)


def _installed(package):
    return Path(importlib.util.find_spec(package).submodule_search_locations[0])


# The user's modules are in the working directory.
if str(Path.cwd()) not in sys.path:
    sys.path.append(str(Path.cwd()))
