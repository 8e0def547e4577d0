"""Say what a config will take before anything is trained: time, memory, and the fastest ways.

    python scripts/plan.py --configfile config/mine.yaml --cores 48

A few seconds of each kind of run are trained and timed. What was measured is kept in the config's
results folder, as is the plan: predicted.csv, ways.csv and studies.csv in plan/.
"""

import sys
from pathlib import Path

from allcores.machine import cores, lean_torch, memory
from allcores.study import commandline

ROOT = Path(__file__).parents[1]


def main(flags):
    for flag, value in (("--cores", flags.cores), ("--memory-mb", flags.memory_mb)):
        if value < 1:
            raise ValueError(f"{flag}: found {value:g}; expected a number from 1")
    # numpy and torch read these when they are imported, so that has to wait until here.
    cores.set_thread_variables(1)
    from allcores.planning import choose, plan, summary
    from allcores.study import checks, grid, results_folder

    config = checks.read(flags.configfile, flags.cores, flags.config)
    name = flags.results or f"results/{results_folder.name_of(flags.configfile, ROOT)}"
    folder = results_folder.ResultsFolder(name)
    room = flags.memory_mb * 1e6
    planner = plan.Planner(folder, flags.cores, room, say)
    if choose.studies_of(config):
        file = folder.planned(choose.FILE)
        known = choose.known(config, file, flags.cores)
        config = known or choose.choose(config, planner, flags.cores, file)
    table = grid.expand(config).to_plan()
    planned = planner.of(table)
    packed = plan.pack(planned, table, flags.cores, room)
    runs = summary.of_runs(planned, packed, table, flags.cores)
    ways, studies = (
        summary.of_ways(runs),
        summary.of_studies(planned, table, flags.cores, room),
    )
    for name, frame in (("predicted", runs), ("ways", ways), ("studies", studies)):
        file = Path(folder.planned(f"{name}.csv"))
        file.parent.mkdir(parents=True, exist_ok=True)
        frame.to_csv(file, index=False)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    print(*choose.said(config), sep="\n")
    print(*summary.said(runs, ways, studies, flags.cores, cores.allowed()), sep="\n")


def say(line):
    """Show what is being measured: on a terminal, in one line that changes."""
    lean_torch.import_torch()  # only where something is measured
    stays = sys.stderr.isatty()
    print(
        f"\r\033[K{line}" if stays else line, end="" if stays else "\n", file=sys.stderr, flush=True
    )


if __name__ == "__main__":
    parser = commandline.of_config(__doc__)
    add = parser.add_argument
    add(
        "--cores",
        type=int,
        default=cores.allowed(),
        metavar="N",
        help="to plan for; more than this machine has are extrapolated (default: all it has)",
    )
    add(
        "--memory-mb",
        type=float,
        default=memory.free_mb(),
        metavar="N",
        help="that the runs share (default: what is free)",
    )
    add("--results", metavar="DIR", help="of the config (default: named after it, in results/)")
    try:
        main(parser.parse_args())
    except (ValueError, OSError) as error:
        sys.exit(f"plan.py: {error}")
