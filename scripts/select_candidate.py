"""Choose between candidates by the mean accuracy of their inner runs."""

import argparse
import sys

from allcores.machine import lifetime

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)

import json
from pathlib import Path

from allcores.analysis import selection
from allcores.files import write_text

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--inner", required=True, metavar="JSON", help="candidate -> folders of its inner runs")
    add("--output", required=True, type=Path, metavar="FILE", help="for what was chosen")
    add("--die-with-parent", type=int, metavar="PID", help="end when the parent process ends")
    flags = parser.parse_args()
    chosen = selection.choose(json.loads(flags.inner))
    write_text(flags.output, json.dumps(chosen, indent=1))
    print(f"chosen: {chosen['chosen']}")
