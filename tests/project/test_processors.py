"""The promises of bits, held as on other processors.

Other instructions add up in another order, so that numbers differ in their last bits between
processors, but what is promised to be equal is equal with all.

    make test-processors            also those that are otherwise left out
    make test PROCESSOR=avx2        all tests, as on one of them
"""

import os
import subprocess
import sys

import processors
import pytest
import torch
from conftest import ENVIRONMENT, ROOT

# The other tests run with what this machine has.
USUAL = ("default",)
TESTS = {
    "equal weights with one worker": [
        "engine/strategies/test_strategies.py",
        "-k",
        "with_one_worker",
    ],
    "resumed bit for bit": [
        "study/training/test_resuming.py",
        "-k",
        "never_killed and (serial or shared)",
    ],
}


@pytest.mark.parametrize(
    "name", processors.VALUES if os.environ.get("PROCESSORS") == "all" else USUAL
)
@pytest.mark.parametrize("tests", TESTS.values(), ids=TESTS)
def test_as_on_another_processor(name, tests):
    file, *selection = tests
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slurm", "--numprocesses=0"]
    run = subprocess.run(
        [*command, ROOT / "tests" / file, *selection],
        env=ENVIRONMENT | {"PROCESSOR": name},
        cwd=ROOT,
        text=True,
        capture_output=True,
    )
    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout


def test_a_whole_tree_of_processes_computes_alike():
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    ask = [sys.executable, "-c", code]

    def capability(**environment):
        environment = ENVIRONMENT | environment
        return subprocess.run(
            ask, env=environment, text=True, stdout=subprocess.PIPE
        ).stdout.strip()

    assert capability() == torch.backends.cpu.get_cpu_capability()
    assert capability(**processors.variables("default")) == "DEFAULT"
