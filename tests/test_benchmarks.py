"""Every benchmark runs: once, in miniature. How fast anything is stays with `make bench`."""

import subprocess
import sys

import pytest
from conftest import ENVIRONMENT, ROOT

FOLDER = ROOT / "tests" / "benchmarks"
# Parts of others; and one that needs the 30 MB of Fashion-MNIST, which a test cannot have.
LEFT_OUT = {"conduct", "measure", "mnist_example", "run_all", "side_by_side", "usual"}
LEFT_OUT |= {"grid_search", "fashion_mnist"}


@pytest.mark.parametrize(
    "name", sorted({file.stem for file in FOLDER.glob("*.py")} - LEFT_OUT), ids=str
)
def test_a_benchmark_runs(tmp_path, name):
    run = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py"],
        cwd=tmp_path,
        env=ENVIRONMENT | {"BENCH": "smoke"},
        text=True,
        capture_output=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    if name == "auto":
        assert "| mlp | 2 | serial" in run.stdout
    else:
        assert (tmp_path / "results" / "bench" / f"{name}.csv").read_text().startswith("what,unit")
