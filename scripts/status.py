"""Show the progress of a config's runs, from another terminal or later.

python scripts/status.py --configfile config/mine.yaml            runs done, running and failed
python scripts/status.py --configfile config/mine.yaml --watch    the same, updated every second
python scripts/status.py --configfile config/mine.yaml --why      which runs would be retrained
python scripts/status.py --configfile config/mine.yaml --unused   results no longer needed
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from allcores_study import programs
from allcores_study.campaign import commands

if TYPE_CHECKING:
    from argparse import Namespace


def main(flags: Namespace) -> None:
    from allcores_study.config import grid
    from allcores_study.records import results_folder
    from allcores_study.watching import journal, why
    from allcores_study.watching.ledger import Ledger
    from allcores_study.watching.status import Status, unused

    config = commands.read_config(flags.configfile, pairs=flags.config)
    name = f"results/{results_folder.name_of(flags.configfile)}"
    folder = results_folder.ResultsFolder(name)
    for finding in results_folder.foreign(flags.configfile, name):
        raise ValueError(finding)
    table = grid.expand(config)
    if not Path(name).is_dir():
        print(f"nothing has been run yet: there is no {Path(name).absolute()}")
    ledger = Ledger(config, table, folder)
    if flags.remove_unused and Path(name).is_dir():
        try:
            held = journal.hold(folder.call_file(journal.LOCK))
        except BlockingIOError:
            raise ValueError("snakemake is running; nothing was removed") from None
        with held:
            print(*unused(folder, table, config, remove=True), sep="\n")
    elif flags.unused or flags.remove_unused:
        print(*unused(folder, table, config), sep="\n")
    elif flags.why:
        print(*why.lines(ledger), sep="\n")
    else:
        status = Status(ledger)
        if flags.watch:
            status.watch()
        snakefile = programs.PROJECT / "workflow" / "Snakefile"

        def rerun(mark: str) -> str:
            return commands.again(flags.configfile, flags.config, str(snakefile), [mark])

        print(*status.lines(status.look(), rerun), sep="\n")


if __name__ == "__main__":
    parser = commands.config_parser(__doc__)
    add = parser.add_argument
    add("--watch", action="store_true", help="update every second until snakemake ends")
    add("--why", action="store_true", help="list the runs that would be retrained, and why")
    add("--unused", action="store_true", help="list the results that the config no longer needs")
    add("--remove-unused", action="store_true", help="list and delete these results")
    try:
        main(parser.parse_args())
        print(end="", flush=True)  # there may be no sys.stdout
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        sys.exit(f"status.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
