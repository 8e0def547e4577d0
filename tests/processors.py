"""Other processors, as which a whole tree of processes can be told to compute.

torch, oneDNN, MKL and OpenBLAS choose their code by the instructions that a processor has; each can
be told by a variable to do without some. PROCESSOR=avx2 in the environment has all tests, and
whatever they start, compute like one without AVX-512 and bf16.
"""

import os

VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
    "OPENBLAS_CORETYPE",
)
VALUES = {
    "default": ("default", "SSE41", "SSE4_2", "Nehalem"),
    "avx2": ("avx2", "AVX2", "AVX2", "Haswell"),
    "avx512": ("avx512", "AVX512_CORE", "AVX512", "Haswell"),
    "avx512_bf16": ("avx512", "AVX512_CORE_BF16", "AVX512", "Haswell"),
    "amx": ("avx512", "AVX512_CORE_AMX", "AVX512", "Haswell"),
    "default_kernels": ("default", "DEFAULT", "AVX2", "Haswell"),
    "mixed": ("avx2", "SSE41", "AVX512", "Haswell"),
}


def variables(name):
    """What the environment has to say for processes to compute like a processor of VALUES."""
    return dict(zip(VARIABLES, VALUES[name], strict=True))


def imitate():
    """Have this process, which must not have imported numpy yet, compute as PROCESSOR says."""
    name = os.environ.pop("PROCESSOR", "")
    if name:
        assert name in VALUES, f"PROCESSOR={name}: expected one of {', '.join(VALUES)}"
        os.environ |= variables(name)
