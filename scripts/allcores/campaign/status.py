"""How far the runs of a config are, from what its calls have recorded."""

import itertools
import time
from pathlib import Path

from allcores import programs
from allcores.campaign import board, closing, journal, state
from allcores.machine import cores

PATIENCE = 5.0  # seconds that a call may take until its journal is there


class Status:
    """Looks at a ResultsFolder and at the runs of a grid.Table in it."""

    def __init__(self, folder, table):
        self.folder, self.table = folder, table
        self.is_current = state.Current(folder, table)

    def _look(self):
        """(the journal.CallRecord, its JobRecords, whether it is over, list of RunState)."""
        call, jobs = journal.read_call(self.folder), journal.read_jobs(self.folder)
        is_over = call is None or call.is_going_on is False
        is_spread = call and call.cores is None
        queue = state.queue(self.folder, self.table, jobs) if is_spread else None
        run_states = state.states(self.folder, self.table, jobs, self.is_current, is_over, queue)
        return call, jobs, is_over and not queue, list(run_states)

    def lines(self):
        """A line on all runs, and one for each job that is running."""
        return self._lines(*self._look())

    def _lines(self, call, jobs, is_over, run_states):
        available = call.cores if call else cores.allowed()
        yield from board.lines(run_states, jobs, self.folder, self.table, call, available, is_over)
        if call and is_over:
            yield "no call of snakemake is going on here"

    def failures(self, arguments):
        """Why jobs failed, and how to run just one again.

        Args:
            arguments: what follows --configfile in the command.
        """
        call, jobs, _, run_states = self._look()
        # On a cluster, the same call as before tries again what failed.
        is_here = call is None or not (call.is_spread or call.batch_job)
        failed = {run_state.path for run_state in run_states if run_state.state == state.FAILED}
        for job in jobs:
            of_job = [path for path in job.runs if path in failed]
            if job.state != journal.FAILED or (job.runs and not of_job):
                continue
            yield from ("", *closing.failure(job))
            for path in of_job if is_here else []:
                target = self.folder.metrics(path)
                again = f"{programs.snakemake()} --cores all {target} --configfile {arguments}"
                yield f"    again: {again}"

    def watch(self):
        """Show the lines every second, until no call is going on and none begins soon."""
        screen, started = board.Board(None), time.monotonic()
        try:
            while True:
                began = time.perf_counter()
                call, jobs, is_over, run_states = self._look()
                screen.show(list(self._lines(call, jobs, is_over, run_states)))
                # Of a call on another machine only its runs can be seen.
                is_seen = any(run_state.state == state.RUNNING for run_state in run_states)
                is_over = is_over or (call.is_going_on is None and not is_seen)
                are_done = all(run_state.state == state.DONE for run_state in run_states)
                if is_over and (are_done or time.monotonic() - started > PATIENCE):
                    break
                time.sleep(max(board.EVERY, (time.perf_counter() - began) / board.SHARE))
        finally:
            screen.close()


def unused(folder, table, config, remove=False):
    """Lines on the parts of the results that the config asks for no more, with their sizes.

    Args:
        folder: the ResultsFolder.
        table: the grid.Table of the config.
        config: its content, as a call writes it down.
        remove: whether to delete them.
    """
    total = 0
    for part, wanted in _wanted(folder, table, config).items():
        files = [file for file in Path(folder.path, part).rglob("*") if file.is_file()]
        gone = [file for file in files if not _is_wanted(file, Path(folder.path, part), wanted)]
        size = sum(file.stat().st_size for file in gone)
        total += size
        if gone:
            yield f"{folder.path}/{part}: {len(gone)} of {len(files)} files, {size / 1e6:,.1f} MB"
        for file in gone if remove else []:
            file.unlink()
            for place in itertools.takewhile(lambda place: not any(place.iterdir()), file.parents):
                place.rmdir()
    if total:
        what = "removed" if remove else "that the config asks for no more; see --remove-unused"
        yield f"{total / 1e6:,.1f} MB {what}"
    else:
        yield "the config asks for all that is there"


def _is_wanted(file, place, wanted):
    """Whether a file in a folder, its name without the suffix, or a folder that it is in is
    wanted."""
    path = file.relative_to(place)
    name = path.with_suffix("")
    return not wanted.isdisjoint(map(str, (path, name, *path.parents)))


def _wanted(folder, table, config):
    """Part of the results -> paths in it that the config asks for, see _is_wanted()."""
    runs, recipes = table.runs, Path(folder.path, "recipes")
    datasets = {run.dataset.label for run in runs.values()}
    of_runs = [Path(folder.recipe_of(run, table)) for run in runs.values()]
    checkpoints = f"{folder.path}/checkpoints"
    return {
        "runs": set(runs),
        "short_runs": {run.file.stem for path, run in folder.store.runs.items() if path in runs},
        "checkpoints": {
            str(Path(folder.checkpoints(run)).relative_to(checkpoints)) for run in runs.values()
        },
        "data": datasets,
        "recipes": {
            str(file.relative_to(recipes).with_suffix(""))
            for of_run in of_runs
            for file in (of_run, *of_run.parent.glob(f"{of_run.stem}_{'[0-9a-f]' * 8}.json"))
        },
        "selections": set(table.choices),
        "studies": set(table.studies),
        "configs": {Path(folder.config(config)).stem},
        "logs/train": set(runs),
    }
