"""Choose between candidates by the mean score of their inner runs."""

import argparse
import sys

from allcores.machine import lifetime

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)

import json
from pathlib import Path

from allcores.analysis import metrics, selection
from allcores.files import read_json, write_json
from allcores.study import grid
from allcores.study.results_folder import ResultsFolder


def discard(folder, table, asked, scored, kept):
    """Delete the checkpoints that no run goes on from."""
    for label, paths in scored.items():
        for number, path in enumerate(paths):
            if label not in kept or not asked.above or folder.has(asked.above[label][number]):
                folder.discard_checkpoints(table.runs[path])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--config", required=True, type=Path, metavar="FILE", help="in configs/ of its results")
    add("--selection", required=True, metavar="PATH", help="which one, by its path")
    add("--metric", required=True, metavar="NAME", help="that of the scores")
    add("--made-of", required=True, metavar="DIGEST", help="of what decides, to be kept")
    add("--output", required=True, type=Path, metavar="FILE", help="for what was chosen")
    add("--die-with-parent", type=int, metavar="PID", help="end when the parent process ends")
    flags = parser.parse_args()
    folder = ResultsFolder(str(flags.config.parents[1]))
    table = grid.expand(json.loads(flags.config.read_text()))
    asked = table.choices[flags.selection]
    scored = folder.scored(asked)
    inner = {label: [folder.run(path) for path in paths] for label, paths in scored.items()}
    try:
        metric = metrics.Metric.of(flags.metric)
        chosen = selection.choose(inner, asked.keeps, len(asked.rungs), metric)
    except ValueError as error:
        discard(folder, table, asked, scored, [])
        sys.exit(f"select_candidate.py: {error}")
    if asked.before:
        earlier = read_json(folder.selection(asked.before.path))
        chosen["candidates"] = earlier["candidates"] | chosen["candidates"]
    write_json(flags.output, chosen | {"made_of": flags.made_of})
    discard(folder, table, asked, scored, chosen["kept"])
    print(f"kept: {', '.join(chosen['kept'])}")
