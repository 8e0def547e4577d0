"""Assign every training sample to the fold in which it is held out."""

import argparse
import sys
from pathlib import Path

from allcores.data import storage
from allcores.data.folds import Assignable, write_folds, write_inner_folds
from allcores.machine import lifetime

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--data", required=True, type=Path, metavar="DIR", help="the prepared dataset")
    add("--folds", required=True, type=int, metavar="N", help="how many; 0: hold out a test set")
    add("--inner", type=int, metavar="M", help="cut each training part into M folds, too")
    add("--seed", required=True, type=int, metavar="N", help="for their order")
    add("--output", required=True, type=Path, metavar="FILE", help="where to write the folds")
    add("--die-with-parent", type=int, metavar="PID", help="end when the parent process ends")
    flags = parser.parse_args()
    try:
        assignable = Assignable.of(storage.open_dataset(flags.data))
        if flags.inner:
            write_inner_folds(flags.output, assignable, flags.folds, flags.inner, flags.seed)
        else:
            write_folds(flags.output, assignable, flags.folds, flags.seed)
    except ValueError as error:
        sys.exit(f"assign_folds.py: {error}")
