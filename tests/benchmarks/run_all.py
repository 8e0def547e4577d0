"""All benchmarks, or those named: python tests/benchmarks/run_all.py input_pipeline start_up

`fashion_mnist`, `many_runs` and `stacked`, which take ten minutes to half an hour, have to be
named.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALL = (
    "input_pipeline",
    "start_up",
    "campaign",
    "nested",
    "from_python",
    "dry_run",
    "packing",
    "backend",
    "tensor_parallel",
    "training_step",
    "step_overhead",
    "two_workers",
    "model_formats",
    "end_to_end",
    "memory",
    "many_tasks",
    "spinning",
)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = sorted(file.stem for file in HERE.glob("*.py") if '"__main__"' in file.read_text())
    parser.add_argument("name", nargs="*", default=ALL, help="one of: " + ", ".join(known))
    for name in parser.parse_args().name:
        subprocess.run([sys.executable, HERE / f"{name}.py"], check=True)
