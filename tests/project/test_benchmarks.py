"""Every benchmark runs: once, in miniature. How fast anything is stays with `make bench`."""

import os
import shlex
import subprocess

import pytest
from conftest import ENVIRONMENT, OF_CALLS, OF_PROGRAMS, ROOT, place_of, warm

from allcores_study.campaign import warm_start

FOLDER = ROOT / "tests" / "benchmarks"
# Parts of others; and one that needs the 30 MB of Fashion-MNIST, which a test cannot have.
EXCLUDED = {"measure", "mnist_example", "run_all", "side_by_side", "train_once", "usual"}
EXCLUDED |= {"grid_search", "fashion_mnist"}


def forked(owner, name):
    """The command of a program in tests/warm/ that a benchmark calls, and not this process."""
    client = list(warm(owner, ROOT / "tests" / "warm" / f"{name}.py"))
    client[client.index(str(os.getpid()))] = "CALLER"
    program = shlex.join(client).replace("CALLER", "$PPID")
    return shlex.join(["sh", "-c", f'exec {program} "$@"', "sh"])


def small():
    """The environment of a benchmark in miniature, whose processes are forked."""
    programs = {"SNAKEMAKE": forked(OF_CALLS, "call"), "PYTHON": forked(OF_PROGRAMS, "program")}
    return programs | {"BENCH": "smoke", warm_start.THERE: str(place_of(OF_PROGRAMS))}


NAMES = sorted({file.stem for file in FOLDER.glob("*.py")} - EXCLUDED)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs(tmp_path, name):
    run = subprocess.run(
        [*warm(OF_PROGRAMS, ROOT / "tests" / "warm" / "program.py"), FOLDER / f"{name}.py"],
        cwd=tmp_path,
        env=ENVIRONMENT | small(),
        text=True,
        capture_output=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "results" / "bench" / f"{name}.csv").read_text().startswith("what,unit")
