"""Measure which recipe trains a model fastest on the cores of this job."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from allcores.machine import lifetime

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)

from allcores.machine import cores, lean_torch
from allcores.parallel import failures
from allcores_study.config.run import Run
from allcores_study.records import marks
from allcores_study.training import recipes


def main(flags: argparse.Namespace) -> None:
    cores.set_thread_variables(flags.cores)
    lean_torch.import_torch()
    run, available = Run.from_json(flags.settings), min(flags.cores, cores.allowed())
    recipes.calibrate(run, flags.data, available, flags.output)
    marks.put_all(flags.mark)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--settings", required=True, metavar="JSON", help="settings of a run that needs the recipe")
    add("--data", required=True, type=Path, metavar="DIR", help="folder of the prepared dataset")
    add("--output", required=True, type=Path, metavar="FILE", help="file for the recipe")
    marks.add_flag(add)
    add("--cores", required=True, type=int, metavar="N", help="number of cores to use at most")
    flags = parser.parse_args()
    try:
        main(flags)
    except (OSError, failures.RankFailedError) as error:  # such as a full disk
        sys.exit(f"calibrate.py: {error}")
