"""Assign every training sample to the fold in which it is held out."""

import argparse
import sys
from pathlib import Path

from allcores.machine import lifetime
from allcores_study.data import folds, storage
from allcores_study.data.folds import Assignable
from allcores_study.records import marks

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--data", required=True, type=Path, metavar="DIR", help="the prepared dataset")
    add("--folds", required=True, type=int, metavar="N", help="how many; 0: hold out a test set")
    add("--inner", type=int, default=0, metavar="M", help="also cut training sets into M folds")
    add("--seed", required=True, type=int, metavar="N", help="seed of their order")
    add("--output", required=True, type=Path, metavar="FILE", help="where to write the folds")
    marks.add_flag(add)
    flags = parser.parse_args()
    try:
        assignable = Assignable.of(storage.open_dataset(flags.data))
        folds.write(flags.output, assignable, flags.folds, flags.inner, flags.seed)
        marks.put_all(flags.mark)
    except (ValueError, OSError) as error:  # OSError: such as a full disk
        sys.exit(f"assign_folds.py: {error}")
