"""Nested cross-validation of a network and a forest on a table, from Python, in three programs.

240 patients of examples/patients, 4 folds of whole hospitals, 3 inner folds, two learning rates:
the shortest programs for allcores, for skorch with scikit-learn, and for Lightning, if it is
installed (`scripts/install.py frameworks`). Their lines, without empty ones, and seconds from start
to end, with all imports. Ours also makes the report; the others print two means.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from measure import PYTHON, ROOT, in_turn, report, sized

PROGRAMS = Path(__file__).parent / "newcomer"
NAMES = {"with_allcores": "allcores", "with_skorch": "skorch", "with_lightning": "Lightning"}
# torchvision for GPUs, beside a torch for CPUs, lacks operators that Lightning's metrics import.
START = (
    "import runpy, sys; from allcores.machine import any_torchvision; "
    "any_torchvision.import_torchvision('ops'); runpy.run_path(sys.argv[1])"
)


def lines(program):
    """How many lines a program has, without its first one and empty ones."""
    text = (PROGRAMS / f"{program}.py").read_text()
    return sum(bool(line.strip()) for line in text.split("\n")[1:])


def seconds(program):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "examples" / "patients" / "patients.csv", folder)
        way = ["-c", START] if program == "with_lightning" else []
        began = time.perf_counter()
        command = [*PYTHON, *way, PROGRAMS / f"{program}.py"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        variables = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
        subprocess.run(command, cwd=folder, env=variables, check=True, **quiet)
        return time.perf_counter() - began


if __name__ == "__main__":
    is_there = importlib.util.find_spec("lightning") is not None
    programs = [name for name in NAMES if is_there or name != "with_lightning"][: sized(3, 1)]
    timings = in_turn({name: lambda n=name: seconds(n) for name in programs}, sized(3, 1))
    rows = []
    for name in programs:
        rows.append((f"{NAMES[name]}: lines of the program", "lines", [lines(name)]))
        rows.append((f"{NAMES[name]}: from start to end", "s", timings[name]))
    report("from_python", rows)
