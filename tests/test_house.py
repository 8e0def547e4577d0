"""What holds for the project's own files."""

import ast
import re
import tomllib

import pytest
import yaml
from conftest import ROOT

from allcores.study import registry

LIBRARY = sorted((ROOT / "scripts").rglob("*.py"))
LOOP = ROOT / "scripts" / "allcores" / "training" / "loop.py"


def pins(lines):
    return dict(re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups() for line in lines)


def test_environment_yml_is_in_step_with_the_pins():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    names = {
        "torch": "pytorch-cpu",
        "snakemake": "snakemake-minimal",
        "matplotlib": "matplotlib-base",
        "seaborn": "seaborn-base",
    }
    expected = {names.get(k, k): v for k, v in pins(groups["run"] + groups["test"]).items()}
    assert conda[0] == "python>=3.11"
    assert pins(conda[1:]) == expected


def test_what_is_installed_is_what_is_pinned():
    from importlib.metadata import version

    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    for package, pinned in pins(groups["run"] + groups["test"]).items():
        assert version(package).partition("+")[0] == pinned, package


@pytest.mark.parametrize("file", LIBRARY, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_file_is_too_long_to_read(file):
    assert len(file.read_text().splitlines()) <= 400


def test_nothing_outside_a_strategys_file_knows_its_name():
    for file in LIBRARY:
        if file.parent.name != "strategies":
            texts = {
                node.value
                for node in ast.walk(ast.parse(file.read_text()))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
            # Where a default is needed, it is that of the config or of the command line.
            if file.stem not in ("grid", "commandline"):
                assert not texts & set(registry.strategies()), file


def imports(file):
    """The modules of this library that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("allcores"):
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_loop_imports_no_strategy_and_no_strategy_the_loop():
    assert not {name for name in imports(LOOP) if name.startswith("allcores.strategies")}
    for file in (LOOP.parents[1] / "strategies").glob("*.py"):
        assert "allcores.training.loop" not in imports(file)


def test_there_are_no_import_circles():
    of = {file: imports(file) for file in LIBRARY}
    names = {
        file: ".".join(file.relative_to(ROOT / "scripts").with_suffix("").parts) for file in LIBRARY
    }

    def reached(file, seen=frozenset()):
        assert file not in seen, f"{file} imports itself by way of {seen}"
        for other in LIBRARY:
            if names[other].removesuffix(".__init__") in of[file]:
                reached(other, seen | {file})

    for file in LIBRARY:
        reached(file)


@pytest.mark.parametrize("file", LIBRARY, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_module_says_what_it_is(file):
    assert file.read_text() == "" or ast.get_docstring(ast.parse(file.read_text()))


def test_the_default_config_names_everything_built_in():
    text = (ROOT / "config" / "config.yaml").read_text()
    known = (registry.models, registry.datasets, registry.schedules, registry.strategies)
    for name in (name for names in known for name in names()):
        assert re.search(rf"\b{name}\b", text), name
