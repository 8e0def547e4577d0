"""Predict the time, the memory and the fastest setups of a config before anything is trained.

    python scripts/plan.py --configfile config/mine.yaml --cores 48

Each kind of run is trained for a few seconds and timed. The config's results folder keeps the
measurements and the table of setups: plan/plan.csv.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from allcores.machine import lifetime

if __name__ == "__main__":
    lifetime.die_with_caller(sys.argv, signal.SIGTERM)  # which lets it clean up

import math
import os
import shutil
import tempfile
from pathlib import Path

from allcores.machine import cores, lean_torch, memory
from allcores_study.campaign import commands

if TYPE_CHECKING:
    from argparse import Namespace
    from types import FrameType

LEAST_MEMORY = 100  # megabytes of a forked run
PREFIX = "allcores-plan-"  # of the name of a temporary folder


def main(flags: Namespace) -> None:
    for flag, value, least in (
        ("--cores", flags.cores, 1),
        ("--memory-mb", flags.memory_mb, LEAST_MEMORY),
    ):
        if not least <= value < math.inf:
            raise ValueError(f"{flag}: found {value:g}; expected a number from {least}")
    # Set before the imports: numpy and torch read these variables when they are imported.
    cores.set_thread_variables(1)
    from allcores_study.config import fit, grid
    from allcores_study.planning import choose, plan, preflight, summary
    from allcores_study.records import results_folder

    config = commands.read_config(flags.configfile, flags.cores, flags.config)
    name = flags.choose or f"results/{results_folder.name_of(flags.configfile)}"
    folder = results_folder.ResultsFolder(name)
    for finding in [] if flags.choose else results_folder.foreign(flags.configfile, name):
        raise ValueError(finding)
    room = flags.memory_mb * 1e6
    planner = plan.Planner(folder, flags.cores, room, say)
    if choose.studies_of(config):
        file = folder.plan_file(choose.FILE)
        chosen_config = choose.with_saved(config, file, flags.cores)
        config = chosen_config or choose.choose(config, planner, flags.cores, file)
    if flags.choose:
        end_line()
        return
    table = grid.expand(config).to_plan()
    command = sys.executable, preflight.PROGRAM
    if problems := preflight.findings(config, table, flags.configfile, folder.tried_out, command):
        raise ValueError("\n".join(["The config cannot be run:", *problems]))
    wide = planner.too_wide(table)
    missing = (
        f"Not estimated: {len(wide)} of {len(table.runs)} runs take more cores than the "
        f"{cores.allowed()} of this machine. Run this where they will run."
    )
    if len(wide) == len(table.runs):
        raise ValueError(missing)
    planned_runs = planner.of(table)
    setups = summary.of_setups(planned_runs, table, flags.cores)
    studies = summary.of_studies(planned_runs, table, flags.cores, room)
    file = Path(folder.plan_file("plan.csv"))
    file.parent.mkdir(parents=True, exist_ok=True)
    setups.to_csv(file, index=False)
    end_line()
    for note in dict.fromkeys(note for name in table.reported for note in fit.notes(config, name)):
        print(f"NOTE: {note}")
    print(*choose.report_lines(config), sep="\n")
    if wide:
        print(missing, end="\n\n")
    print(*summary.report_lines(setups, studies, flags.cores, cores.allowed()), sep="\n")


def temporary_folder() -> str:
    """Make a temporary folder for this process, and delete those of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)  # fails for another user's
    tempfile.tempdir = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
    return tempfile.tempdir


def end(folder: str) -> None:
    """End all processes that were started, and remove their folder."""
    lifetime.end_descendants()
    shutil.rmtree(folder, ignore_errors=True)


def end_line() -> None:
    """On a terminal, clear the line that say() has written."""
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def say(line: str) -> None:
    """Show what is being measured: on a terminal, in one line that is overwritten."""
    lean_torch.import_torch()  # only where something is measured
    is_terminal = sys.stderr.isatty()
    text, end = (f"\r\033[K{line}", "") if is_terminal else (line, "\n")
    print(text, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    parser = commands.config_parser(__doc__)
    add = parser.add_argument
    add(
        "--cores",
        type=int,
        default=cores.allowed(),
        metavar="N",
        help="cores to plan for (default: all); runs wider than this machine are left out",
    )
    add(
        "--memory-mb",
        type=float,
        default=memory.free_mb(),
        metavar="N",
        help="megabytes of memory that the runs share (default: the free memory)",
    )
    add("--choose", metavar="DIR", help="only choose setups for `auto`; DIR is the results folder")
    flags = parser.parse_args()
    lifetime.adopt_orphans()
    folder, process = temporary_folder(), os.getpid()

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        if os.getpid() == process:  # not a process that it has forked
            print("plan.py: stopped; measurements are kept", file=sys.stderr, flush=True)
            end(folder)
        os._exit(128 + number)  # Python drops exceptions in callbacks of fork()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        main(flags)
        print(end="", flush=True)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        sys.exit(f"plan.py: {error}")
    finally:
        end(folder)
