"""The promises of bits, held as on other processors.

torch, oneDNN and MKL choose their code by the instructions that a processor has; each can be told
to do without some. Other instructions add up in another order, so that numbers differ in their last
bits between them, but what is promised to be equal is equal with all.

    make test-processors    those that are left out else, too
"""

import os
import subprocess
import sys

import pytest
from conftest import ENVIRONMENT, ROOT

PROCESSORS = {
    # torch's kernels, oneDNN, MKL
    "sse": ("default", "SSE41", "SSE4_2"),
    "avx2": ("avx2", "AVX2", "AVX2"),
    "avx512": ("avx512", "AVX512_CORE", "AVX512"),
    "avx512_bf16": ("avx512", "AVX512_CORE_BF16", "AVX512"),
    "amx": ("avx512", "AVX512_CORE_AMX", "AVX512"),
    "sse_kernels": ("default", "DEFAULT", "AVX2"),
    "mixed": ("avx2", "SSE41", "AVX512"),
}
# The other tests run with what this machine has.
USUAL = ("sse",)
TESTS = {
    "equal weights with one worker": ["test_strategies.py", "-k", "with_one_worker"],
    "resumed bit for bit": ["test_resuming.py", "-k", "never_killed and (serial or shared)"],
}


@pytest.mark.parametrize("name", PROCESSORS if os.environ.get("PROCESSORS") == "all" else USUAL)
@pytest.mark.parametrize("tests", TESTS.values(), ids=TESTS)
def test_as_on_another_processor(name, tests):
    variables = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
    settings = dict(zip(variables, PROCESSORS[name], strict=True))
    file, *selection = tests
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slurm", "--numprocesses=0"]
    run = subprocess.run(
        [*command, ROOT / "tests" / file, *selection],
        env=ENVIRONMENT | settings,
        cwd=ROOT,
        text=True,
        capture_output=True,
    )
    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout
