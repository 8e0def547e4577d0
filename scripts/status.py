"""Say how far the runs of a config are, from its results folder: from another terminal, or later.

python scripts/status.py --configfile config/mine.yaml            what is done, running, failed
python scripts/status.py --configfile config/mine.yaml --watch    the same, until all is done
python scripts/status.py --configfile config/mine.yaml --why      why which runs would run again
"""

import os
import shlex
import sys
import time
from collections import defaultdict
from pathlib import Path

from allcores.machine import cores
from allcores.study import commandline
from allcores.study.run import Run

ROOT = Path(__file__).parents[1]
LAST_LINES = 5  # of the log of a run that failed


def main(flags):
    from allcores.campaign import state
    from allcores.campaign.board import Board, lines
    from allcores.campaign.record import Record
    from allcores.planning import choose
    from allcores.study import checks, grid, results_folder

    config = checks.read(flags.configfile, given=flags.config)
    name = f"results/{results_folder.name_of(flags.configfile, ROOT)}"
    folder = results_folder.ResultsFolder(name)
    config = choose.known(config, folder.planned(choose.FILE), None)
    if config is None:
        raise ValueError("`strategies: [auto]`: no way of training was chosen yet")
    table = grid.expand(config)
    if not Path(name).is_dir():
        print(f"nothing has been run yet: there is no {Path(name).absolute()}")
    if flags.why:
        return print(*why(folder, table), sep="\n")

    def look():
        record = Record.read(folder)
        found = state.states(folder, table, record)
        available = record.cores if record else cores.allowed()
        return lines(found, table, record, available, bool(record) and record.is_going_on is False)

    if flags.watch:
        board = Board(look)
        try:
            while True:
                told = list(look())
                board.show(told)
                if not is_going_on(folder, len(told) > 1):
                    break
                time.sleep(1)
        finally:
            board.close()
    print(*look(), sep="\n")
    record = Record.read(folder)
    if record and record.is_going_on is False:
        print("no call of snakemake is going on here")
    for one in state.states(folder, table, record):
        if one.state == state.FAILED:
            print(*failure(folder, table.runs[one.path], flags), sep="\n")
    return None


def is_going_on(folder, has_running):
    """Whether the latest call is; of one on another machine only its runs can be seen."""
    from allcores.campaign.record import Record

    record = Record.read(folder)
    going_on = record.is_going_on if record else False
    return has_running if going_on is None else going_on


def failure(folder, run: Run, flags):
    """Why a run failed, and how to run just that again."""
    from allcores.campaign import state

    yield f"\nfailed: {run.path}"
    yield from (f"    {line}" for line in state.text_of(folder.log(run)).splitlines()[-LAST_LINES:])
    yield f"    its log: {folder.log(run)}"
    target, files = f"{folder.run(run.path)}/metrics.json", " ".join(map(str, flags.configfile))
    given = f" --config {shlex.join(flags.config)}" if flags.config else ""
    yield f"    again: .venv/bin/snakemake --cores all {target} --configfile {files}{given}"


def why(folder, table):
    """A line for each reason, with the runs that it is of."""
    from allcores.campaign.why import reasons

    runs_of = defaultdict(list)
    for path in folder.wanted(table):
        found = reasons(folder, table.runs[path], table)
        if found:
            runs_of["\n    ".join(found)].append(path)
    for reason, paths in runs_of.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield f"{paths[0]}{more}:\n    {reason}"
    if not runs_of:
        yield "all runs are what the config asks for"


if __name__ == "__main__":
    parser = commandline.of_config(__doc__)
    add = parser.add_argument
    add("--watch", action="store_true", help="look again every second, until the call ends")
    add("--why", action="store_true", help="say why which runs would be trained again")
    try:
        main(parser.parse_args())
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads, head for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        sys.exit(f"status.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
