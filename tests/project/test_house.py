"""What holds for the project's own files."""

import ast
import importlib
import re
import runpy
import tomllib
from importlib.metadata import version

import yaml
from conftest import ROOT

from allcores_study.config import registry

PROGRAMS = sorted((ROOT / "scripts").glob("*.py"))
ENGINE = sorted((ROOT / "scripts" / "allcores").rglob("*.py"))
STUDY = sorted((ROOT / "scripts" / "allcores_study").rglob("*.py"))
LIBRARY = [*ENGINE, *STUDY]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
RULES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))
# Folder of a package -> the others of it that it may import from; nobody imports a program. The
# study imports the engine, and not the other way.
OF_ENGINE = {
    "machine": set(),
    "parallel": {"machine"},
    "strategies": {"parallel"},
    "loop": {"machine", "parallel", "strategies"},
}
OF_STUDY = {
    "config": set(),
    "records": {"config"},
    "tasks": {"config"},
    "data": {"config", "records", "tasks"},
    "models": set(),
    "datasets": {"data", "tasks"},
    "training": {"config", "records", "tasks", "data"},
    "analysis": {"config", "records", "tasks", "data"},
    "stacking": {"config", "records", "data", "training"},
    "serving": {"config", "records", "tasks", "data", "datasets", "training", "analysis"},
    "planning": {"config", "records", "tasks", "data", "training", "stacking"},
    "watching": {"config", "records", "data", "planning", "training", "analysis"},
    "campaign": {
        *{"config", "records", "data", "planning", "training", "analysis", "watching", "serving"},
    },
    "interactive": {
        *("config", "records", "data", "datasets", "planning", "campaign", "analysis", "watching"),
        "serving",
    },
}
# Folder of the study -> those of the engine that it may import from; nobody imports a strategy.
OF_STUDY_IN_ENGINE = {
    "config": {"loop"},
    "records": {"machine"},
    "tasks": set(),
    "data": {"machine", "loop"},
    "models": {"machine"},
    "datasets": {"machine"},
    "training": {"machine", "parallel", "loop"},
    "analysis": {"machine"},
    "stacking": {"machine", "parallel", "loop"},
    "serving": set(),
    "planning": {"machine", "parallel", "loop"},
    "watching": {"machine"},
    "campaign": {"machine"},
    "interactive": {"machine"},
}
# Files beside the folders that all may import.
FOR_ALL = {"files", "options", "version", "programs", "yaml_files"}
# The smaller the count of what is within sight, the sooner a thing is found.
MOST_LINES = {"file": 450, "rules": 420, "Snakefile": 60}
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
    assert conda[:2] == ["python>=3.11", "c-compiler"]
    assert pins(conda[2:]) == {names.get(name, name): wanted for name, wanted in pinned.items()}


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
    # Folders of components, to which anyone may add a file.
    components = {registry.ENGINE / "strategies"}
    for name in ("datasets", "models", "tasks", "analysis/tables", "analysis/figures"):
        components.add(registry.LIBRARY / name)
    for folder in {file.parent for file in LIBRARY} - components:
        modules = [file for file in folder.glob("*.py") if file.stem != "__init__"]
        assert len(modules) <= MOST_MODULES, folder


def test_every_module_says_what_it_is():
    for file in (*PROGRAMS, *LIBRARY, *TESTS):
        assert ast.get_docstring(ast.parse(file.read_text())), file


def is_for_types(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(file, typed=True):
    """The modules that a file imports, wherever in it, and what may be modules.

    Args:
        typed: whether to list what only annotations need as well.
    """
    modules = set()
    tree = ast.parse(file.read_text())
    if not typed:
        tree.body = [node for node in tree.body if not is_for_types(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


def room_of(file):
    """The folder of a file in its package, or the name of a file beside the folders."""
    return file.relative_to(ROOT / "scripts").with_suffix("").parts[1]


def rooms_imported(file, package):
    names = [name.split(".") for name in imports(file)]
    return {name[1] for name in names if name[0] == package and len(name) > 1}


def test_the_engine_knows_nothing_of_the_study():
    for file in ENGINE:
        assert not {name for name in imports(file) if name.split(".")[0] == "allcores_study"}, file


def test_the_rooms_import_in_one_direction():
    for files, package, arrows in (
        (ENGINE, "allcores", OF_ENGINE),
        (STUDY, "allcores_study", OF_STUDY),
    ):
        folders = {room_of(file) for file in files if len(file.relative_to(ROOT).parts) > 3}
        assert set(arrows) == folders
        for file in files:
            if (room := room_of(file)) in arrows:
                found = rooms_imported(file, package) - {room} - FOR_ALL
                assert found <= arrows[room], f"{file} imports {found - arrows[room]}"
    for file in STUDY:
        if (room := room_of(file)) in OF_STUDY_IN_ENGINE:
            found = rooms_imported(file, "allcores") - FOR_ALL - OF_STUDY_IN_ENGINE[room]
            assert not found, f"{file} imports {found} of the engine"


def test_what_is_needed_before_torch_imports_no_torch():
    for file in LIBRARY:
        if room_of(file) in ("config", "records", "machine", "analysis"):
            assert not {name for name in imports(file) if name.split(".")[0] == "torch"}, file


def test_nothing_outside_a_strategys_file_knows_its_name():
    for file in (*PROGRAMS, *LIBRARY):
        if file.parent.name == "strategies" or file.stem in ("grid", "by_hand", "settings"):
            continue  # where a default is needed, it is that of the config or of the command line
        nodes = ast.walk(ast.parse(file.read_text()))
        texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        assert not texts & set(registry.strategies()), file


def test_there_are_no_import_circles():
    names = {
        ".".join(file.relative_to(ROOT / "scripts").with_suffix("").parts): file for file in LIBRARY
    }
    names = {name.removesuffix(".__init__"): file for name, file in names.items()}
    of = {name: imports(file, typed=False) & set(names) for name, file in names.items()}
    # A package that is only on the way to a module need not be complete for it.
    of = {name: {n for n in modules if f"{n}." not in f"{name}."} for name, modules in of.items()}

    def reached(name, seen=()):
        assert name not in seen, " -> ".join([*seen, name])
        for other in of[name]:
            reached(other, (*seen, name))

    for name in names:
        reached(name)


def test_the_manual_is_what_the_code_says():
    """Else `make manual`, and commit what it writes."""
    manual = runpy.run_path(str(ROOT / "docs" / "manual.py"))
    properties = manual["properties"]()
    written = manual["CONFIG"].read_text()
    assert manual["annotated"](yaml.safe_load(written), properties) == written
    assert manual["reference"](properties) == manual["REFERENCE"].read_text()
    assert manual["schema"]() == manual["SCHEMA"].read_text()


def test_the_drill_changes_lines_that_are_there(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "drills")
    for name, line in importlib.import_module("faults").CODE.items():
        assert line in (ROOT / f"scripts/allcores/strategies/{name}.py").read_text()
