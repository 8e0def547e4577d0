"""All benchmarks, or those named: python tests/benchmarks/run_all.py input_pipeline start_up

`auto` and `fashion_mnist`, which take half an hour and a quarter, have to be named, and
`allocation`, which installs SLURM.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALL = (
    "input_pipeline",
    "start_up",
    "campaign",
    "dry_run",
    "packing",
    "ring",
    "synchronous_step",
    "two_level",
    "training_step",
    "step_overhead",
    "shallow",
    "model_recipes",
    "end_to_end",
    "memory",
)

if __name__ == "__main__":
    for name in sys.argv[1:] or ALL:
        subprocess.run([sys.executable, HERE / f"{name}.py"], check=True)
