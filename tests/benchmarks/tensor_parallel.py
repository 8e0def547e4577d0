"""Tokens per second of examples/frameworks/with_tensor_parallel.py by gloo and by shm."""

import os
import re
import subprocess
import sys

from measure import ROOT, in_turn, ratios, report
from side_by_side import worker_counts

PROGRAM = ROOT / "examples" / "frameworks" / "with_tensor_parallel.py"


def speed(ranks, backend):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, f"--nproc-per-node={ranks}", PROGRAM, backend]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return float(re.search(r"(\d+) tokens per second", run.stdout)[1])


if __name__ == "__main__":
    rows = []
    for ranks in worker_counts():
        measured = in_turn(
            {backend: lambda b=backend, r=ranks: speed(r, b) for backend in ("gloo", "shm")}, 3
        )
        rows += [
            (f"{backend}, {ranks} ranks", "tokens/s", values)
            for backend, values in measured.items()
        ]
        relative = ratios(measured["shm"], measured["gloo"])
        rows.append((f"shm, {ranks} ranks: speed relative to gloo", "x", relative))
    report("tensor_parallel", rows)
