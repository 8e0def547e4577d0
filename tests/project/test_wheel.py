"""The wheel: `allcores` from any folder, without a clone."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, ROOT

from allcores import __version__ as allcores_version

STUDY = """
models:
  mlp: {hidden: [8], batch_size: 16, epochs: 1, optimizer: {name: sgd, lr: 0.05}}
datasets:
  tiny: {name: fake, count: 40, test: 0, size: 8, classes: 2}
studies:
  first: {datasets: [tiny], folds: 2, models: [mlp]}
precision: fp32
memory_format: contiguous
"""

IMPORT_ALONE = """
import sys
for name in ("allcores_study", "snakemake", "pandas", "yaml", "sklearn", "torchvision"):
    sys.modules[name] = None
import allcores.backend
import allcores, torch
from allcores.loop import named
for name in named.names():
    assert named.load(name)

def train(worker):
    shared = worker.share(
        torch.nn.Linear(2, 1), lambda weights: torch.optim.SGD(weights, 0.1), "shared_memory"
    )
    for inputs, weight in worker.batches(torch.ones(5, 2), 2):
        (weight * shared.model(inputs).mean()).backward()
        shared.step()

assert allcores.run(train, workers=2) == [None, None]
"""
BACKEND = """
import allcores.backend
import torch.distributed as dist
dist.init_process_group("shm", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
print(dist.get_backend())
"""


@pytest.fixture(scope="module")
def allcores(tmp_path_factory):
    """A function that calls `allcores` as installed from a wheel, in an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*build, "--wheel-dir", folder, ROOT], check=True, env=ENVIRONMENT)
    (wheel,) = folder.glob("allcores-*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    place = folder / "elsewhere"
    place.mkdir()
    (place / "mine.yaml").write_text(STUDY)
    holds = set(zipfile.ZipFile(wheel).namelist())
    project = {"Snakefile", "workflow/Snakefile", "profiles/default/config.yaml"}
    top = {"allcores/__init__.py", "snakemake_executor_plugin_allcores_slurm/__init__.py"}
    (compiled,) = [name for name in holds if name.endswith(".so")]
    assert compiled.startswith("allcores/parallel/exchange_") and "-none-any" not in wheel.name
    assert top | {f"allcores_project/{name}" for name in project} <= holds
    installed = folder / "installed"
    start = "from allcores_project.scripts.command import main; main()"

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-c", start, *arguments],
            cwd=place,
            env=ENVIRONMENT | {"PYTHONPATH": str(installed)},
            text=True,
            capture_output=True,
        )

    call.place, call.installed = place, installed
    return call


def test_a_study_is_trained_where_it_is_called(allcores):
    run = allcores("run", "--configfile", "mine.yaml", "--cores", "2")
    assert run.returncode == 0, run.stderr
    assert "results/mine/studies/first/report.html" in run.stderr
    status = allcores("status", "--configfile", "mine.yaml")
    assert status.stdout.startswith("2 done, 0 running, 0 failed, 0 to go"), status.stderr


def alone(allcores, program):
    """A program that has what is installed on its path, and nothing of this folder."""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=allcores.place,
        env=ENVIRONMENT | {"PYTHONPATH": str(allcores.installed)},
        text=True,
        capture_output=True,
    )


def test_the_library_is_imported_without_the_packages_of_the_workflow(allcores):
    """With no more than what the wheel depends on, and no program beside it."""
    said = alone(allcores, IMPORT_ALONE)
    assert said.returncode == 0, said.stderr


def test_the_library_keeps_newer_packages_and_the_workflow_has_the_pins(allcores):
    (metadata,) = allcores.installed.glob("allcores-*.dist-info/METADATA")
    needed = re.findall(
        r"Requires-Dist: (\w\S*?)(; extra == .workflow.)?$", metadata.read_text(), re.M
    )
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    library = set(groups["library"])
    pins = {package for package in groups["run"] if isinstance(package, str)} | library
    assert {package for package, extra in needed if extra} == pins
    lower_bounds = {package.replace("==", ">=") for package in library}
    assert {package for package, extra in needed if not extra} == lower_bounds


def test_torch_finds_the_backend_of_what_is_installed(allcores):
    said = alone(allcores, BACKEND)
    assert said.stdout == "shm\n", said.stderr


def test_the_profile_of_a_cluster_is_found(allcores):
    said = allcores("run", "--configfile", "mine.yaml", "--profile", "slurm", "-n", "--forceall")
    assert said.returncode == 0, said.stderr
    assert "train" in said.stdout + said.stderr
    assert "never awaited" not in said.stdout + said.stderr


def test_what_it_can_do_is_said(allcores):
    assert "expected --configfile FILE" in allcores("run").stderr
    assert "allcores run --configfile mine.yaml" in allcores("run", "--help").stdout
    assert allcores("run", "--configfile=mine.yaml", "-n").returncode == 0
    assert allcores("--version").stdout.strip() == allcores_version
    assert "allcores run --configfile mine.yaml" in allcores().stdout
    wrong = allcores("rum")
    assert wrong.returncode == 1
    assert (
        "found rum; expected one of run, folder, python, plan, status, predict, train"
        in wrong.stderr
    )


def test_what_is_documented_to_submit_is_there(allcores):
    (folder,) = allcores("folder").stdout.splitlines()
    assert Path(folder, "profiles", "allocation.sh").is_file()
    assert allcores("python").stdout.splitlines() == [sys.executable]
