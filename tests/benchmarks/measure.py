"""Measure alternatives side by side: in turn, several times, medians; print and keep as CSV.

With BENCH=smoke in its environment a benchmark does everything once and in miniature: that shows
whether it runs, as `make test` does, and not how fast anything is.
"""

import contextlib
import csv
import datetime
import importlib.metadata
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from allcores.machine import cores  # noqa: E402

RESULTS = Path("results/bench")
IS_SMOKE = os.environ.get("BENCH") == "smoke"
# The tests have both forked from what has imported most.
SNAKEMAKE = shlex.split(os.environ.get("SNAKEMAKE", f"{sys.executable} -m snakemake"))
PYTHON = shlex.split(os.environ.get("PYTHON", sys.executable))


def sized(usual, smoke):
    """One of two sizes of a thing."""
    return smoke if IS_SMOKE else usual


def in_turn(alternatives, repeats):
    """Call the alternatives in turn, `repeats` times after one warm-up.

    Args:
        alternatives: name -> function that returns what is measured.

    Returns:
        name -> list of the measurements.
    """
    measured = {name: [] for name in alternatives}
    for repeat in range(sized(repeats + 1, 1)):
        for name, measure in alternatives.items():
            value = measure()
            if repeat or IS_SMOKE:
                measured[name].append(value)
    return measured


def in_a_process(program, *arguments):
    """The number that a call of a program prints last."""
    command = [*PYTHON, program, *map(str, arguments)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(run.stdout.split()[-1])


def report(bench, rows):
    """Print a table of (what, unit, values) with medians and range, and write it as CSV, with the
    machine, torch, date and commit.

    Args:
        bench: name of the benchmark.
        rows: [(what, unit, [measurements]), ...].
    """
    conditions = {
        "machine": f"{cores.allowed()} cores of {cores.processor()}",
        "torch": importlib.metadata.version("torch"),
        "date": datetime.date.today().isoformat(),
        "commit": _commit(),
    }
    table = [
        {
            "what": what,
            "unit": unit,
            "median": statistics.median(values),
            "min": min(values),
            "max": max(values),
            "repeats": len(values),
            **conditions,
        }
        for what, unit, values in rows
    ]
    print(f"\n{bench}")
    for row in table:
        print(
            f"  {row['what']:58} {row['median']:10.3f} {row['unit']:9} "
            f"({row['min']:.3f} .. {row['max']:.3f}, {row['repeats']} x)"
        )
    sys.stdout.flush()
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / f"{bench}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)


def _commit():
    """The commit that is checked out; with + if files have changed since; "": there is none."""
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty=+", "--exclude=*"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return ""


def ratios(numerators, denominators):
    """Pair by pair, so that a machine whose speed drifts does not matter."""
    return [a / b for a, b in zip(numerators, denominators, strict=True)]
