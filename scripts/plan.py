"""Estimate how long a config will take, and its memory, before anything is trained.

    python scripts/plan.py --configfile config/mine.yaml --cores 48

Each model is smoke tested, which takes seconds. The number of cores may be that of another machine,
of a similar speed. Which way of using the cores is fastest, a study with `exclusive: true` answers.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from allcores.machine import lifetime

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv)

import math

from allcores.machine import cores, memory
from allcores_study.campaign import commands, warm_start

if TYPE_CHECKING:
    from argparse import Namespace

LEAST_MEMORY_MB = 100  # of a run


def main(flags: Namespace) -> None:
    from allcores_study.config import fit, grid
    from allcores_study.planning import plan, preflight
    from allcores_study.planning.estimate import Estimates
    from allcores_study.records import results_folder

    for flag, value, least in (
        ("--cores", flags.cores, 1),
        ("--memory-mb", flags.memory_mb, LEAST_MEMORY_MB),
    ):
        if not least <= value < math.inf:
            raise ValueError(f"{flag}: found {value:g}; expected a number from {least}")
    config = commands.read_config(flags.configfile, flags.cores, flags.config)
    name = f"results/{results_folder.name_of(flags.configfile)}"
    for finding in results_folder.foreign(flags.configfile, name):
        raise ValueError(finding)
    folder, table = results_folder.ResultsFolder(name), grid.expand(config)
    command = warm_start.command(preflight.PROGRAM, is_warm=False)
    if problems := preflight.findings(config, table, flags.configfile, folder.tried_out, command):
        raise ValueError("\n".join(["The config cannot be run:", *problems]))
    notes = [note for study in table.reported for note in fit.notes(config, study)]
    for note in (*notes, *preflight.notes_on_bf16(table, folder.tried_out)):
        print(f"NOTE: {note}")
    estimates = Estimates(table, folder, is_forked=True, cores=flags.cores)
    print(*plan.lines(estimates, config, flags.cores, flags.memory_mb), sep="\n")
    print("Times are for training and scoring; preparing data and making reports come on top.")


if __name__ == "__main__":
    parser = commands.config_parser(__doc__)
    add = parser.add_argument
    add(
        "--cores",
        type=int,
        default=cores.allowed(),
        metavar="N",
        help="cores to plan for (default: all of this machine)",
    )
    add(
        "--memory-mb",
        type=float,
        default=memory.free_mb(),
        metavar="N",
        help="megabytes of memory that the runs share (default: the free memory)",
    )
    flags = parser.parse_args()
    try:
        main(flags)
        print(end="", flush=True)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        sys.exit(f"plan.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
