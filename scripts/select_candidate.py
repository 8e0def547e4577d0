"""Choose between candidates by the mean scores of their inner runs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from allcores.machine import lifetime

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)

import json
from pathlib import Path

from allcores_study.analysis import metrics, selection
from allcores_study.config import grid
from allcores_study.records import fingerprint, marks
from allcores_study.records.identity import Record
from allcores_study.records.results_folder import ResultsFolder

if TYPE_CHECKING:
    from allcores_study.config.candidates import Selection


def discard(
    folder: ResultsFolder,
    table: grid.Table,
    choice: Selection,
    inner_paths: dict[str, list[str]],
    labels: list[str],
) -> None:
    """Delete the checkpoints from which no run continues."""
    for label, paths in inner_paths.items():
        for number, path in enumerate(paths):
            if (
                label not in labels
                or not choice.next_inner
                or folder.has(choice.next_inner[label][number])
            ):
                folder.discard_checkpoints(table.runs[path])


def main(flags: argparse.Namespace) -> None:
    folder = ResultsFolder(str(flags.config.parents[1]))
    table = grid.expand(json.loads(flags.config.read_text()))
    choice = table.choices[flags.selection]
    inner_paths = folder.scored_paths(choice)
    runs = {label: list(map(folder.run_files, paths)) for label, paths in inner_paths.items()}
    made_of = folder.made_of_choice(choice, flags.metric)
    metric = metrics.Metric.of(flags.metric)
    earlier = {}
    if choice.previous:
        earlier = Record.read(folder.selection(choice.previous.path)).content["candidates"]
    try:
        if choice.search:
            by = choice.suggested_by
            values = folder.suggested(by) if by else choice.search.first
            result = selection.choose_in_search(choice, runs, values, earlier, metric)
        else:
            result = selection.choose(runs, choice.keeps, choice.rung, metric)
            result["candidates"] = earlier | result["candidates"]
    except ValueError:  # all have diverged
        discard(folder, table, choice, inner_paths, [])
        raise
    Record(made_of, loaded=fingerprint.loaded(), content=result).write(flags.output)
    discard(folder, table, choice, inner_paths, result["kept"])
    marks.put_all(flags.mark)
    print(f"kept: {', '.join(result['kept'])}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add(
        "--config",
        required=True,
        type=Path,
        metavar="FILE",
        help="config, in configs/ of the results",
    )
    add("--selection", required=True, metavar="PATH", help="path of the choice")
    add("--metric", required=True, metavar="NAME", help="metric to compare by")
    add("--output", required=True, type=Path, metavar="FILE", help="file for the choice")
    marks.add_flag(add)
    flags = parser.parse_args()
    try:
        main(flags)
    except (ValueError, OSError) as error:
        sys.exit(f"select_candidate.py: {error}")
