"""Download or generate a dataset, and write it as memory-mapped arrays."""

import argparse
import sys
from pathlib import Path

from allcores.machine import lifetime
from allcores_study.config.run import Entry
from allcores_study.data import preparation
from allcores_study.records import marks

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--settings", required=True, metavar="JSON", help="name and options of the dataset")
    add("--downloads", required=True, type=Path, metavar="DIR", help="folder for original files")
    add("--output", required=True, type=Path, metavar="DIR", help="folder for the arrays")
    marks.add_flag(add)
    flags = parser.parse_args()
    try:
        (flags.output / "dataset.json").unlink(missing_ok=True)  # or prepare() would keep it
        preparation.prepare(Entry.from_json(flags.settings), flags.downloads, flags.output)
        marks.put_all(flags.mark)
    except (ValueError, OSError) as error:
        sys.exit(str(error))
