"""How busy the runs of a study keep the cores over time. No torch."""

import numpy as np

from allcores.analysis import tidy

PAUSE = 30  # seconds without any run: a pause between two calls of snakemake, cut out
BINS = 240


def without_pauses(intervals):
    """A function from seconds since 1970 to seconds since the start, with the pauses cut out.

    Args:
        intervals: (start, end) of each run, in seconds since 1970; gaps of more than PAUSE between
            them are cut out.
    """
    real, shown = [], []
    for start, stop in sorted(intervals):
        if not real:
            real, shown = [start, start], [0.0, 0.0]
        if start - real[-1] > PAUSE:
            real += [start, start]
            shown += [shown[-1], shown[-1]]
        if stop > real[-1]:
            shown[-1] += stop - real[-1]
            real[-1] = stop
    return lambda time: np.interp(time, real, shown)


def makespan(runs):
    """Seconds from the start of the first run to the end of the last, pauses cut out."""
    intervals = [
        tuple(map(float, session.split("-")))
        for sessions in runs["sessions"]
        for session in sessions.split()
    ]
    return float(without_pauses(intervals)(runs["ended"].max()))


def cores_available(runs):
    """How many cores the call could use, added up over the machines."""
    return int(runs.groupby("machine_host")["cores_of_call"].max().sum())


def busy_cores(utilisation):
    """Cores in use over time, by strategy.

    Args:
        utilisation: time (seconds since 1970) and cpu_seconds used so far, per run.

    Returns:
        (edges, busy): (BINS + 1,) seconds since the start, pauses cut out; and strategy -> (BINS,)
        cores that its runs kept busy.
    """
    runs = [run for _, run in utilisation.groupby([*tidy.RUN, "session"])]
    clock = without_pauses([(run["time"].iloc[0], run["time"].iloc[-1]) for run in runs])
    edges = np.linspace(0, max(clock(run["time"].iloc[-1]) for run in runs), BINS + 1)
    busy = {name: np.zeros(BINS) for name in dict.fromkeys(utilisation["strategy"])}
    for run in runs:
        used = np.interp(edges, clock(run["time"]), run["cpu_seconds"])
        busy[run["strategy"].iloc[0]] += np.diff(used) / np.diff(edges)
    return edges, busy
