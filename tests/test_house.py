"""What holds for the project's own files."""

import ast
import importlib
import re
import runpy
import tomllib
from importlib.metadata import version

import yaml
from conftest import ROOT

from allcores.study import registry, schema

PROGRAMS = sorted((ROOT / "scripts").glob("*.py"))
LIBRARY = sorted((ROOT / "scripts" / "allcores").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
RULES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))
# Folder of the library -> the others that it may import from; nobody imports a program.
ARROWS = {
    "study": set(),
    "machine": set(),
    "records": {"study", "data", "training", "analysis"},
    "tasks": {"study"},
    "data": {"study", "machine", "tasks"},
    "parallel": {"machine"},
    "models": {"machine"},
    "datasets": {"data", "machine", "tasks"},
    "strategies": {"parallel"},
    "training": {"study", "machine", "tasks", "data", "parallel"},
    "analysis": {"study", "machine", "tasks", "data"},
    "stacking": {"study", "machine", "data", "parallel", "training"},
    "serving": {"study", "tasks", "data", "datasets", "training"},
    "campaign": {"records", "study", "machine", "data", "planning", "analysis", "training"},
    "planning": {"study", "machine", "tasks", "data", "parallel", "training"},
}
PUBLIC = {  # what users import by its name
    "backend.py": {"parallel"},
    "worker.py": {
        *("data", "machine", "parallel", "strategies", "study", "training"),
        "shared_model",
    },
    "shared_model.py": set(),
}
# The smaller the count of what is within sight, the sooner a thing is found.
MOST_LINES = {"file": 400, "rules": 420, "Snakefile": 60}
MOST_PROGRAMS, MOST_MODULES = 15, 15


def pins(lines):
    return dict(re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups() for line in lines)


def groups():
    """The groups of packages, each without those that it includes."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    return {name: [line for line in lines if type(line) is str] for name, lines in groups.items()}


def all_pins():
    return pins(groups()["library"] + groups()["run"] + groups()["test"])


def test_environment_yml_is_in_step_with_the_pins():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    names = {
        "torch": "pytorch-cpu",
        "snakemake": "snakemake-minimal",
        "matplotlib": "matplotlib-base",
        "seaborn": "seaborn-base",
    }
    pinned = all_pins()
    assert conda[0] == "python>=3.11"
    assert pins(conda[1:]) == {names.get(name, name): wanted for name, wanted in pinned.items()}


def test_what_is_installed_is_what_is_pinned():
    for package, pinned in all_pins().items():
        assert version(package).partition("+")[0] == pinned, package


def lines_of(*files):
    return sum(len(file.read_text().splitlines()) for file in files)


def test_everything_is_small_enough_to_be_found_and_read():
    for file in (*PROGRAMS, *LIBRARY, *TESTS):
        assert lines_of(file) <= MOST_LINES["file"], file
    assert lines_of(*RULES) <= MOST_LINES["rules"]
    assert lines_of(ROOT / "workflow" / "Snakefile") <= MOST_LINES["Snakefile"]
    assert len(PROGRAMS) <= MOST_PROGRAMS
    # Of these a folder has as many files as there are.
    each_one = {registry.LIBRARY / name for name in ("strategies", "datasets", "analysis/figures")}
    for folder in {file.parent for file in LIBRARY} - each_one:
        modules = [file for file in folder.glob("*.py") if file.stem != "__init__"]
        assert len(modules) <= MOST_MODULES, folder


def test_every_module_says_what_it_is():
    for file in (*PROGRAMS, *LIBRARY, *TESTS):
        assert ast.get_docstring(ast.parse(file.read_text())), file


def imports(file):
    """The modules that a file imports, wherever in it, and what may be modules."""
    modules = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


def wing_of(file):
    return file.relative_to(registry.LIBRARY).parts[0]


def test_the_wings_import_in_one_direction():
    wings = {path.name for path in registry.LIBRARY.iterdir() if (path / "__init__.py").exists()}
    assert set(ARROWS) == wings
    for file in LIBRARY:
        imported_wings = {
            name.split(".")[1] for name in imports(file) if name.startswith("allcores.")
        }
        allowed = (ARROWS | PUBLIC).get(wing_of(file), set()) | {
            wing_of(file),
            "files",
            "programs",
            "version",
            "yaml_files",
        }
        assert imported_wings <= allowed, f"{file} imports {imported_wings - allowed}"


def test_what_is_needed_before_torch_imports_no_torch():
    for file in LIBRARY:
        if wing_of(file) in ("study", "machine", "analysis"):
            assert not {name for name in imports(file) if name.split(".")[0] == "torch"}, file


def test_nothing_outside_a_strategys_file_knows_its_name():
    for file in (*PROGRAMS, *LIBRARY):
        if file.parent.name == "strategies" or file.stem in ("grid", "commandline"):
            continue  # where a default is needed, it is that of the config or of the command line
        nodes = ast.walk(ast.parse(file.read_text()))
        texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        assert not texts & set(registry.strategies()), file


def test_there_are_no_import_circles():
    names = {
        ".".join(file.relative_to(ROOT / "scripts").with_suffix("").parts): file for file in LIBRARY
    }
    names = {name.removesuffix(".__init__"): file for name, file in names.items()}
    of = {name: imports(file) & set(names) for name, file in names.items()}
    # A package that is only on the way to a module need not be complete for it.
    of = {name: {n for n in modules if f"{n}." not in f"{name}."} for name, modules in of.items()}

    def reached(name, seen=()):
        assert name not in seen, " -> ".join([*seen, name])
        for other in of[name]:
            reached(other, (*seen, name))

    for name in names:
        reached(name)


def test_the_manual_is_what_the_schema_says():
    """Else `make manual`, and commit what it writes."""
    manual = runpy.run_path(str(ROOT / "docs" / "manual.py"))
    properties = yaml.safe_load(schema.FILE.read_text())["properties"]
    written = manual["CONFIG"].read_text()
    assert manual["annotated"](yaml.safe_load(written), properties) == written
    assert manual["reference"](properties) == manual["REFERENCE"].read_text()


def test_the_drill_changes_lines_that_are_there(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "drills")
    for name, line in importlib.import_module("faults").CODE.items():
        assert line in (ROOT / f"scripts/allcores/strategies/{name}.py").read_text()
