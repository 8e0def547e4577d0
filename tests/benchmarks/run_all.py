"""All benchmarks, or those named: python tests/benchmarks/run_all.py input_pipeline start_up

`auto`, `fashion_mnist`, `many_runs` and `stacked`, which take ten minutes to half an hour, have to
be named, and `allocation`, which installs SLURM.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALL = (
    "input_pipeline",
    "start_up",
    "campaign",
    "nested",
    "search",
    "dry_run",
    "packing",
    "backend",
    "training_step",
    "step_overhead",
    "model_recipes",
    "end_to_end",
    "memory",
    "many_tasks",
)

if __name__ == "__main__":
    for name in sys.argv[1:] or ALL:
        subprocess.run([sys.executable, HERE / f"{name}.py"], check=True)
